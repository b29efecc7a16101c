import { storedVersionsOf } from "../test/crd.ts";
import { MERGE_PATCH, objectPath, CRDS, POLICIES, POLICY_BINDINGS } from "../test/api-client.ts";
import { messageOf } from "../test/demo/api.ts";
import { type Cluster, eventually } from "../test/integration/cluster.ts";
import { GROUP, TestKind, versionsOf } from "../test/integration/crd-fixture.ts";

export const OLD = "v1";
export const NEW = "v2";
export const OBJECTS = 3;
const NAMESPACE = "default";
const VERSIONS = [OLD, NEW];

/** What the API server said to one request. */
export interface Said {
  readonly status: number;
  /** Empty where the request was accepted. */
  readonly message: string;
}

/** What is found after a migration. */
export interface Aftermath {
  /** Objects in etcd by the version they are stored in. */
  readonly storedInEtcd: Readonly<Record<string, number>>;
  readonly storedVersions: readonly string[];
  /** The attempt to drop the old version from the CRD. */
  readonly dropOldVersion: Said;
  /** A GET of every object after that attempt. */
  readonly reads: readonly (Said & { readonly name: string })[];
}

/**
 * Three objects stored as v1, an admission policy that rejects updates of one of them, and v2 as the storage version:
 * the case in which a migration cannot succeed.
 */
export async function prepareRejectedObject(cluster: Cluster, word: string): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { versions: VERSIONS, storage: OLD });
  await cluster.createObjects(kind.resource(OLD), kind.objects(OBJECTS, OLD));
  await rejectUpdates(cluster, kind, "w1");
  await cluster.setVersions(kind, { versions: VERSIONS, storage: NEW });
  return kind;
}

async function rejectUpdates({ api }: Cluster, kind: TestKind, name: string): Promise<void> {
  const rule = { apiGroups: [GROUP], apiVersions: ["*"], resources: [kind.plural], operations: ["UPDATE"] };
  const base = { apiVersion: "admissionregistration.k8s.io/v1", metadata: { name: kind.plural } };
  await api.create(POLICIES, {
    ...base,
    kind: "ValidatingAdmissionPolicy",
    spec: {
      matchConstraints: { resourceRules: [rule] },
      validations: [
        { expression: `object.metadata.name != "${name}"`, message: "updates of this object are rejected" },
      ],
    },
  });
  await api.create(POLICY_BINDINGS, {
    ...base,
    kind: "ValidatingAdmissionPolicyBinding",
    spec: { policyName: kind.plural, validationActions: ["Deny"] },
  });
  const touch = { type: MERGE_PATCH, body: { metadata: { labels: { touched: "yes" } } } };
  const isRejected = (): Promise<boolean> =>
    api.patch(kind.resource(OLD), { name, namespace: NAMESPACE }, touch, { dryRun: true }).then(
      () => false,
      () => true,
    );
  await eventually(isRejected, "the policy is in force");
}

/** Reads etcd and the CRD, then tries to drop the old version and to read every object. */
export async function lookAtAftermath(cluster: Cluster, kind: TestKind): Promise<Aftermath> {
  const storedInEtcd = await cluster.storedAs(kind);
  const storedVersions = storedVersionsOf(await cluster.crd(kind));
  const dropOldVersion = await request(cluster, objectPath(CRDS, kind), {
    spec: { versions: versionsOf({ versions: [NEW], storage: NEW }) },
  });
  if (dropOldVersion.status === 200) await cluster.waitForVersion(kind, OLD, false);
  const reads = [];
  for (const { metadata } of kind.objects(OBJECTS, NEW)) {
    const name = metadata.name ?? "";
    const path = objectPath(kind.resource(NEW), { name, namespace: NAMESPACE });
    reads.push({ name, ...(await request(cluster, path)) });
  }
  return { storedInEtcd, storedVersions, dropOldVersion, reads };
}

/** A GET, or a merge patch where there is a body. */
async function request({ controlPlane }: Cluster, path: string, body?: unknown): Promise<Said> {
  const answer = await controlPlane.request(path, body === undefined ? {} : { method: "PATCH", body });
  return { status: answer.status, message: answer.status < 300 ? "" : messageOf(answer) };
}
