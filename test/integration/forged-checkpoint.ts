import type { Lease } from "../../src/api/lease.ts";
import { CHECKPOINT_KEY_ANNOTATION } from "../../src/api/names.ts";
import { CRDS, LEASES, MERGE_PATCH } from "../../src/kube/resources.ts";
import { leaseNameOf } from "../../src/lease/lease-acquire.ts";
import { DEFAULT_LEASE_NAMESPACE } from "../../src/lease/run-lease-ref.ts";
import { CHECKPOINT_ANNOTATION } from "../../src/lease/run-lease.ts";
import { CheckpointKey } from "../../src/migrator/checkpoint-key.ts";
import { type Checkpoint, formatCheckpoint } from "../../src/migrator/rewrite/checkpoint.ts";
import type { Cluster } from "./cluster.ts";
import type { TestKind } from "./crd-fixture.ts";

function leaseOf(kind: Pick<TestKind, "name">) {
  return { namespace: DEFAULT_LEASE_NAMESPACE, name: leaseNameOf(kind.name) };
}

/** What the last run on a CRD left in its Lease. */
export async function checkpointOf({ api }: Cluster, kind: Pick<TestKind, "name">): Promise<Checkpoint> {
  const { metadata } = await api.get<Lease>(LEASES, leaseOf(kind));
  return JSON.parse(metadata.annotations?.[CHECKPOINT_ANNOTATION] ?? "null") as Checkpoint;
}

/** Writes a checkpoint as a client does that may write Leases: all in it is right, down to the digest, but who wrote it. */
export async function writeCheckpoint(
  { api }: Cluster,
  kind: Pick<TestKind, "name">,
  checkpoint: Checkpoint,
  sign = (text: string): string => text,
): Promise<void> {
  const annotations = { [CHECKPOINT_ANNOTATION]: sign(formatCheckpoint(checkpoint)) };
  await api.patch(LEASES, leaseOf(kind), { type: MERGE_PATCH, body: { metadata: { annotations } } });
}

/** The same as a client does that may write the CRD, too: the next run takes it for what an earlier run left. */
export async function writeAsTheRun(
  cluster: Cluster,
  kind: Pick<TestKind, "name">,
  checkpoint: Checkpoint,
): Promise<void> {
  const key = new CheckpointKey();
  const annotations = { [CHECKPOINT_KEY_ANNOTATION]: key.publicKey };
  await cluster.api.patch(CRDS, { name: kind.name }, { type: MERGE_PATCH, body: { metadata: { annotations } } });
  await writeCheckpoint(cluster, kind, checkpoint, (text) => key.sign(text));
}
