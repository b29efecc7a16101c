import { CRDS, MERGE_PATCH } from "../api-client.ts";
import { type Cluster, eventually } from "./cluster.ts";
import { type CrdShape, type TestKind, versionsOf } from "./crd-fixture.ts";

/** The CRD after v1alpha1 has left it. */
export const V1: CrdShape = { versions: ["v1"], storage: "v1" };

/** What the API server says where it cannot decode an object; empty where it lists them all. */
export async function listProblem(cluster: Cluster, { plural }: TestKind): Promise<string> {
  const { body, status } = await cluster.controlPlane.request(`/apis/example.com/v1/${plural}?limit=500`);
  return status === 200 ? "" : JSON.stringify(body);
}

/** Takes every version but v1 out of storedVersions, as people do by hand. */
export async function pruneByHand({ api }: Cluster, kind: TestKind): Promise<void> {
  const patch = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
  await api.patch(CRDS, kind, patch, { subresource: "status", fieldManager: "kubectl-patch" });
}

/** Creates an object in v1. The API server may still write the version that was the storage version a moment ago. */
export async function createInV1(cluster: Cluster, kind: TestKind): Promise<void> {
  const { api } = cluster;
  const ref = { name: "a", namespace: "default" };
  await api.create(kind.resource("v1"), kind.object(ref.name, "v1"));
  let writes = 0;
  const isInV1 = async (): Promise<boolean> => {
    const body = { metadata: { annotations: { writes: String(++writes) } } };
    await api.patch(kind.resource("v1"), ref, { type: MERGE_PATCH, body });
    return (await cluster.storedAs(kind))["v1"] === 1;
  };
  await eventually(isInV1, "it is stored in v1");
}

/** Takes every version but v1 out of the CRD, so that objects in others cannot be read. */
export async function dropOldVersions(cluster: Cluster, kind: TestKind, shape: CrdShape = V1): Promise<void> {
  await cluster.api.patch(CRDS, kind, { type: MERGE_PATCH, body: { spec: { versions: versionsOf(shape) } } });
  const isLost = async (): Promise<boolean> => (await listProblem(cluster, kind)).includes("invalid group/version");
  await eventually(isLost, "the objects are lost");
}

/** Objects in v1alpha1 of which one cannot be seen through the API any more, and one in v1. */
export async function loseObjects(cluster: Cluster, kind: TestKind, count: number): Promise<void> {
  await cluster.createStale(kind, count);
  await createInV1(cluster, kind);
  await pruneByHand(cluster, kind);
  await dropOldVersions(cluster, kind);
}
