import { setTimeout as delay } from "node:timers/promises";
import { storageVersionOf } from "../crd.ts";
import { stateOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import { MIGRATIONS } from "../api-client.ts";
import type { Cluster } from "../integration/cluster.ts";
import type { TestKind } from "../integration/crd-fixture.ts";
import type { ReplicaSet } from "./replica-set.ts";

/** Whom an {@link ambush} waits for. */
export interface AmbushOptions {
  readonly cluster: Cluster;
  readonly set: ReplicaSet;
  readonly kinds: readonly TestKind[];
  /** On the monotonic clock. */
  readonly deadline: number;
}

/** The completing look comes within a second: an ambush has to come before it, in milliseconds. */
const POLL_MS = 40;
const WRITTEN_MS = 5_000;

/**
 * Waits until a migration has succeeded, stops the leader before it has noticed, and changes the storage version there and
 * back, with an object written in between: from then on the migration proves nothing.
 * @returns the leader, which stands still; `undefined` where no migration succeeded in time, or nobody led
 */
export async function ambush(options: AmbushOptions): Promise<Awaited<ReturnType<ReplicaSet["leader"]>>> {
  const { cluster, set } = options;
  const leader = await set.leader();
  const kind = leader && (await untilSucceeded(options));
  if (leader === undefined || kind === undefined || (await set.leader()) !== leader) return undefined;
  leader.kill("SIGSTOP");
  const current = storageVersionOf(await cluster.crd(kind));
  const other = current === "v1" ? "v1alpha1" : "v1";
  // Nobody is there to freeze it, but it may be frozen still.
  const deadline = performance.now() + ((await change(cluster, kind, other)) ? WRITTEN_MS : 0);
  while (performance.now() < deadline && (await cluster.storedAs(kind))[other] === undefined) await delay(POLL_MS);
  await change(cluster, kind, current);
  return leader;
}

async function untilSucceeded({ cluster, kinds, deadline }: AmbushOptions): Promise<TestKind | undefined> {
  const succeeded = async (): Promise<readonly StorageVersionMigration[]> =>
    (await cluster.api.list<StorageVersionMigration>(MIGRATIONS)).filter((one) => stateOf(one) === "Succeeded");
  const known = new Set((await succeeded()).map(({ metadata }) => metadata.uid));
  while (performance.now() < deadline) {
    const found = (await succeeded()).find(({ metadata }) => !known.has(metadata.uid));
    const kind = kinds.find(({ plural }) => plural === found?.spec.resource.resource);
    if (kind !== undefined) return kind;
    await delay(POLL_MS);
  }
  return undefined;
}

function change(cluster: Cluster, kind: TestKind, storage: string): Promise<boolean> {
  return cluster.setVersions(kind, { storage, statusSubresource: true }).then(
    () => true,
    () => false,
  );
}
