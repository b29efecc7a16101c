import { decodeStored, isCbor } from "../control-plane/decode-stored.ts";
import type { ApiserverOptions } from "../control-plane/apiserver.ts";
import { type Cluster, eventually } from "../integration/cluster.ts";
import { GROUP, type TestKind } from "../integration/crd-fixture.ts";

/** A host name for each API server, so that each has an identity Lease of its own. */
const HOSTS = ["alpha", "beta"];

/** What an API server at this index is started with: it stores custom resources as CBOR, or as JSON. */
export function storing(encoding: "json" | "cbor", index = 0): ApiserverOptions {
  return { hostname: HOSTS[index] ?? "", featureGates: { CBORServingAndStorage: encoding === "cbor" } };
}

/** Starts the API server at the index again. */
export async function restartStoring(
  { controlPlane }: Cluster,
  encoding: "json" | "cbor",
  { index = 0, ...more }: ApiserverOptions & { readonly index?: number } = {},
): Promise<void> {
  await controlPlane.restartApiserver(index, { ...storing(encoding, index), ...more });
}

/** How many objects of a kind etcd has in each encoding and version, such as `cbor v1`. */
export async function encodings({ controlPlane }: Cluster, { plural }: TestKind): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { apiVersion, raw } of await controlPlane.stored.storedObjects(GROUP, plural)) {
    const key = `${isCbor(raw) ? "cbor" : "json"} ${apiVersion.slice(GROUP.length + 1)}`;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}

/** etcd's revision of the last write of each object of a kind, by name. */
export async function revisions({ controlPlane }: Cluster, { plural }: TestKind): Promise<Record<string, number>> {
  const objects = await controlPlane.stored.storedObjects(GROUP, plural);
  return Object.fromEntries(objects.map(({ modRevision, name }) => [name, modRevision]));
}

interface Decoded {
  readonly apiVersion: string;
  readonly metadata: { readonly name: string; readonly managedFields?: unknown };
}

/** The stored objects of a kind without what differs between two versions, in the order of their names. */
export async function contents({ controlPlane }: Cluster, { plural }: TestKind): Promise<readonly object[]> {
  const objects = await controlPlane.stored.storedObjects(GROUP, plural);
  return objects.map(({ raw }) => ({ ...(decodeStored(raw) as Decoded), apiVersion: "" }));
}

/** Waits until the API server at the index serves the kind in `v1`, as after a restart. */
export async function untilServed({ controlPlane }: Cluster, { plural }: TestKind, apiserver = 0): Promise<void> {
  const path = `/apis/${GROUP}/v1/${plural}?limit=1`;
  await eventually(
    async () => (await controlPlane.request(path, { apiserver, timeoutMs: 10_000 })).status === 200,
    `${plural} is served`,
  );
}
