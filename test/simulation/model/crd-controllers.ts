import { CRD_PREFIX, crdFactsOf } from "./crd-registry.ts";
import { CRD_FINALIZER } from "./crd-strategy.ts";
import type { SimEtcd } from "./etcd.ts";
import { isSame, type ModelObject, without } from "./model-object.ts";
import { timeText } from "./server-context.ts";
import type { EtcdEntry } from "./timeline.ts";

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly lastTransitionTime?: string;
  readonly reason?: string;
  readonly message?: string;
}

interface Status {
  readonly conditions?: readonly Condition[] | null;
  readonly acceptedNames?: unknown;
}

/**
 * Does what the controllers of kube-apiserver do with CRDs: accepts their names, establishes them, and empties those that
 * are deleted. Each step is a write of its own.
 * @returns whether anything was written
 */
export function runCrdControllers(etcd: SimEtcd, now: number): boolean {
  const { revision } = etcd;
  for (const entry of etcd.range(CRD_PREFIX)) {
    if (entry.object.metadata.deletionTimestamp === undefined) establish(etcd, entry, now);
    else finalize(etcd, entry);
  }
  return etcd.revision !== revision;
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/controller/status/naming_controller.go */
function establish(etcd: SimEtcd, entry: EtcdEntry, now: number): void {
  const { names } = entry.object["spec"] as { names: unknown };
  const status = (entry.object["status"] ?? {}) as Status;
  const isOn = (type: string): boolean =>
    (status.conditions ?? []).some((one) => one.type === type && one.status === "True");
  if (isSame(status.acceptedNames, names) && isOn("Established")) return;
  const lastTransitionTime = timeText(now);
  const accepted = {
    type: "NamesAccepted",
    status: "True",
    lastTransitionTime,
    reason: "NoConflicts",
    message: "no conflicts found",
  };
  const installing = {
    type: "Established",
    status: "False",
    lastTransitionTime,
    reason: "Installing",
    message: "the initial names have been accepted",
  };
  const named = isOn("NamesAccepted")
    ? status
    : withCondition(isOn("Established") ? status : withCondition(status, installing), accepted);
  const first = write(etcd, entry, { ...named, acceptedNames: names });
  if (first === undefined || isOn("Established")) return;
  const message = "the initial names have been accepted";
  const established = {
    type: "Established",
    status: "True",
    lastTransitionTime,
    reason: "InitialNamesAccepted",
    message,
  };
  write(etcd, first, withCondition(first.object["status"] as Status, established));
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/controller/finalizer/crd_finalizer.go */
function finalize(etcd: SimEtcd, entry: EtcdEntry): void {
  const { finalizers = [] } = entry.object.metadata;
  if (!finalizers.includes(CRD_FINALIZER)) return;
  const { group, names } = crdFactsOf(entry);
  const prefix = `/registry/${group}/${names.plural}/`;
  for (const { key, modRevision } of etcd.range(prefix)) etcd.delete(key, modRevision);
  const left = finalizers.filter((name) => name !== CRD_FINALIZER);
  if (left.length === 0) {
    etcd.delete(entry.key, entry.modRevision);
    return;
  }
  const metadata = { ...without(entry.object.metadata, "finalizers"), finalizers: left };
  etcd.put(entry.key, { object: { ...entry.object, metadata } }, entry.modRevision);
}

function withCondition(status: Status, condition: Condition): Status {
  const conditions = status.conditions ?? [];
  const at = conditions.findIndex(({ type }) => type === condition.type);
  return { ...status, conditions: at === -1 ? [...conditions, condition] : conditions.with(at, condition) };
}

function write(etcd: SimEtcd, entry: EtcdEntry, status: Status): EtcdEntry | undefined {
  const object: ModelObject = { ...entry.object, status };
  return etcd.put(entry.key, { object }, entry.modRevision);
}
