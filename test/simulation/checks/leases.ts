import { holderOf, type Lease } from "../../lease.ts";
import { CONTROLLER_LEASE, MIGRATION_API_VERSION, SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import type { EtcdEntry } from "../model/etcd.ts";
import { currentWriter } from "../world/api-server.ts";
import { isByKsvm, type World } from "../world/world.ts";

const RUN_LEASE = /^\/registry\/leases\/[^/]+\/ksvm-migrate\./;
const LEADER_LEASE = `/registry/leases/${SYSTEM_NAMESPACE}/${CONTROLLER_LEASE}`;
/** Whatever it says, it is waited for no longer, in seconds. */
const MAX_DURATION_S = 60;

/** A Lease of a run, and that of the leader, is written by its holder alone, until it stood still for its whole duration. */
export function checkLeases(world: World): void {
  const { etcd } = world.cluster;
  /** When each was last written. */
  const writtenAt = new Map<string, number>();
  etcd.onRevision((entry) => {
    const { before, isDeleted, key, modRevision, object } = entry;
    if (key !== LEADER_LEASE && !RUN_LEASE.test(key)) return;
    const stoodMs = world.schedule.now - (writtenAt.get(key) ?? Number.NEGATIVE_INFINITY);
    writtenAt.set(key, world.schedule.now);
    const earlier = leaseIn(before);
    const [from, to] = [holderOf(earlier), holderOf(isDeleted ? undefined : (object as unknown as Lease))];
    const isOver = stoodMs >= Math.min(earlier?.spec?.leaseDurationSeconds ?? 0, MAX_DURATION_S) * 1_000;
    const writer = currentWriter() ?? "";
    if (!isByKsvm() || from === "" || from.startsWith(`${writer}_`)) return;
    if (to.startsWith(`${writer}_`) && isOver) return;
    world.violate(
      `Lease: ${writer} wrote that of ${from} at revision ${modRevision}, ${Math.round(stoodMs)} ms after it was written`,
    );
  });
  checkFence(world);
}

function leaseIn(entry: EtcdEntry | undefined): Lease | undefined {
  return entry === undefined || entry.isDeleted ? undefined : (entry.object as unknown as Lease);
}

/**
 * A replica writes no migration and no StorageState once another one, or none, holds the Lease of the leader. What its runs write has
 * preconditions of its own.
 */
function checkFence(world: World): void {
  const { cluster } = world;
  cluster.onRequest(({ method, path, user }) => {
    if (method === "GET" || !path.startsWith(`/apis/${MIGRATION_API_VERSION}/`)) return;
    const sender = world.programNamed(user);
    if (sender?.plan.run !== "controller" || sender.process.missesTime) return;
    const holder = holderOf(leaseIn(cluster.etcd.get(LEADER_LEASE)));
    if (holder.startsWith(`${user}_`)) return;
    world.violate(`leader fence: ${user} sends ${method} ${path} as the leader, and "${holder}" holds the Lease`);
  });
}
