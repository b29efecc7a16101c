import { CRD_PREFIX, crdFactsOf } from "./crd-registry.ts";
import { CRD_FINALIZER, type CrdCondition, type CrdStatus, withCondition } from "./crd-strategy.ts";
import { markedForDeletion } from "./deletes.ts";
import type { SimEtcd } from "./etcd.ts";
import { managedByUpdate } from "./managed-fields.ts";
import { isSame, type ModelObject, without } from "./model-object.ts";
import { withManaged } from "./object-meta.ts";
import type { ServedKind } from "./served-kinds.ts";
import { timeText } from "./server-context.ts";
import type { EtcdEntry } from "./timeline.ts";

/**
 * Does what the controllers of kube-apiserver do with CRDs: accepts their names, establishes them, and empties those that
 * are deleted. Each step is a write of its own.
 * @param now milliseconds since the Unix epoch
 * @returns whether anything was written
 */
export function runCrdControllers(etcd: SimEtcd, now: number): boolean {
  const { revision } = etcd;
  for (const entry of etcd.range(CRD_PREFIX)) {
    if (entry.object.metadata.deletionTimestamp === undefined) establish(etcd, entry, now);
    else finalize(etcd, entry, now);
  }
  return etcd.revision !== revision;
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/controller/status/naming_controller.go */
function establish(etcd: SimEtcd, entry: EtcdEntry, now: number): void {
  const { group, names } = entry.object["spec"] as { readonly group: string; readonly names: unknown };
  const status = (entry.object["status"] ?? {}) as CrdStatus;
  const isOn = (type: string): boolean =>
    (status.conditions ?? []).some((one) => one.type === type && one.status === "True");
  if (isSame(status.acceptedNames, names) && isOn("Established")) return;
  const condition = (type: string, reason: string, message: string, isTrue = true): CrdCondition => {
    return { type, status: isTrue ? "True" : "False", lastTransitionTime: timeText(now), reason, message };
  };
  let next: CrdStatus = { ...status, acceptedNames: names };
  if (!isOn("NamesAccepted"))
    next = withCondition(next, condition("NamesAccepted", "NoConflicts", "no conflicts found"));
  if (isOn("Established")) {
    write(etcd, entry, { status: next, now });
    return;
  }
  next = withCondition(next, condition("Established", "Installing", INSTALLING, false));
  if (isProtected(group)) {
    const { annotations = {} } = entry.object.metadata;
    const approval = annotations[APPROVED] ?? "";
    next = withCondition(next, condition(CONFORMANT, "ApprovedAnnotation", `approved in ${approval}`));
  }
  const first = write(etcd, entry, { status: next, now });
  if (first === undefined) return;
  const established = condition("Established", "InitialNamesAccepted", INSTALLING);
  write(etcd, first, { status: withCondition(next, established), now });
}

const INSTALLING = "the initial names have been accepted";
const APPROVED = "api-approved.kubernetes.io";
const CONFORMANT = "KubernetesAPIApprovalPolicyConformant";

/** https://github.com/kubernetes/enhancements/pull/1111 */
function isProtected(group: string): boolean {
  return /(^|\.)(k8s|kubernetes)\.io$/.test(group);
}

/**
 * Deletes the objects of a CRD, then the CRD. Objects that finalizers hold are waited for.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/controller/finalizer/crd_finalizer.go
 */
function finalize(etcd: SimEtcd, entry: EtcdEntry, now: number): void {
  const { finalizers = [] } = entry.object.metadata;
  if (!finalizers.includes(CRD_FINALIZER)) return;
  const { group, kinds, names } = crdFactsOf(entry);
  const kind = [...kinds.values()][0] as ServedKind;
  const objects = etcd.range(`/registry/${group}/${names.plural}/`);
  for (const { encryptionKey, key, modRevision, object } of objects) {
    const marked = markedForDeletion(kind, object, now);
    if (marked === undefined) etcd.delete(key, modRevision);
    else if (marked !== object) etcd.put(key, { object: marked, encryptionKey }, modRevision);
  }
  if (etcd.range(`/registry/${group}/${names.plural}/`).length > 0) return;
  const left = finalizers.filter((name) => name !== CRD_FINALIZER);
  if (left.length === 0) {
    etcd.delete(entry.key, entry.modRevision);
    return;
  }
  const metadata = { ...without(entry.object.metadata, "finalizers"), finalizers: left };
  etcd.put(entry.key, { object: { ...entry.object, metadata } }, entry.modRevision);
}

/** Writes the status as kube-apiserver does by its own client. */
function write(
  etcd: SimEtcd,
  entry: EtcdEntry,
  { now, status }: { readonly status: CrdStatus; readonly now: number },
): EtcdEntry | undefined {
  const changed: ModelObject = { ...entry.object, status };
  const managed = managedByUpdate(entry.object, changed, {
    manager: "kube-apiserver",
    apiVersion: entry.object.apiVersion,
    subresource: "status",
    time: timeText(now),
    ignored: ["spec"],
  });
  return etcd.put(entry.key, { object: withManaged(changed, managed) }, entry.modRevision);
}
