import { holderOf, type Lease } from "../../../src/api/lease.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../../src/api/names.ts";
import type { ModelRequest } from "../model/answers.ts";
import type { EtcdEntry } from "../model/etcd.ts";
import { currentWriter } from "../world/api-server.ts";
import { collectionOf } from "../world/kinds.ts";
import { isByKsvm, type World } from "../world/world.ts";

const RUN_LEASE = /^\/registry\/leases\/[^/]+\/ksvm-migrate\./;
const LEADER_LEASE = `/registry/leases/${SYSTEM_NAMESPACE}/${CONTROLLER_LEASE}`;
/** Whatever it says, it is waited for no longer, in seconds. */
const MAX_DURATION_S = 60;

/**
 * A Lease of a run, and that of the leader, is written by its holder alone, until it stood still for its whole duration. One of a run of a
 * replica has stood still also where the Lease of the leader has: a replica that does not lead any more does nothing but clean up.
 */
export function checkLeases(world: World): void {
  const { etcd } = world.cluster;
  /** When each was last written. */
  const writtenAt = new Map<string, number>();
  /** Whom each holder of the Lease of the leader replaced, after that had stood still. */
  const replaced = new Map<string, string>();
  etcd.onRevision((entry) => {
    const { before, isDeleted, key, modRevision, object } = entry;
    if (key !== LEADER_LEASE && !RUN_LEASE.test(key)) return;
    const stoodMs = world.schedule.now - (writtenAt.get(key) ?? Number.NEGATIVE_INFINITY);
    writtenAt.set(key, world.schedule.now);
    const earlier = leaseIn(before);
    const [from, to] = [holderOf(earlier), holderOf(isDeleted ? undefined : (object as unknown as Lease))];
    const isOver = stoodMs >= Math.min(earlier?.spec?.leaseDurationSeconds ?? 0, MAX_DURATION_S) * 1_000;
    if (key === LEADER_LEASE && from !== to && from !== "" && isOver) replaced.set(to, from);
    const writer = currentWriter() ?? "";
    if (!isByKsvm() || from === "" || from.startsWith(`${writer}_`)) return;
    const isOfReplaced = [...replaced].some(([by, gone]) => by.startsWith(`${writer}_`) && from.startsWith(`${gone}/`));
    if (to.startsWith(`${writer}_`) && (isOver || isOfReplaced)) return;
    world.violate(
      `Lease: ${writer} wrote that of ${from} at revision ${modRevision}, ${Math.round(stoodMs)} ms after it was written`,
    );
  });
  checkFence(world);
}

function leaseIn(entry: EtcdEntry | undefined): Lease | undefined {
  return entry === undefined || entry.isDeleted ? undefined : (entry.object as unknown as Lease);
}

/** What a leader alone writes, beside built-in resources: custom resources, CRDs, migrations and StorageStates. */
const PATHS = /^\/apis\/(sim\.example\.com|apiextensions\.k8s\.io|migration\.k8s\.io)\//;
/** What guards a freeze: a leader that ends deletes its own. */
const POLICIES = /^\/apis\/admissionregistration\.k8s\.io\/[^/]+\/validatingadmissionpolic/;
const OF_FREEZES = /\bksvm-freeze\./;

/** A replica sends no write of a leader once another one, or none, holds the Lease. It may lift its own freeze then: that is how a leader ends. */
function checkFence(world: World): void {
  const { cluster, plan } = world;
  const collections = plan.kinds.flatMap((kind) =>
    kind.isBuiltIn === true ? kind.versions.map((version) => `${collectionOf(kind, version)}/`) : [],
  );
  const isOfLeader = ({ body, method, path }: ModelRequest): boolean => {
    if (POLICIES.test(path)) return method !== "DELETE" && OF_FREEZES.test(method === "POST" ? body : path);
    return PATHS.test(path) || collections.some((collection) => path.startsWith(collection));
  };
  cluster.onRequest((request) => {
    if (request.method === "GET" || !isOfLeader(request) || isHarmless(request)) return;
    const sender = world.programNamed(request.user);
    if (sender?.plan.run !== "controller" || sender.process.missesTime) return;
    const holder = holderOf(leaseIn(cluster.etcd.get(LEADER_LEASE)));
    if (holder.startsWith(`${request.user}_`)) return;
    const what = `${request.user} sends ${request.method} ${request.path} as the leader`;
    world.violate(`leader fence: ${what}, and "${holder}" holds the Lease`);
  });
}

/** A dry-run, or a freeze that is lifted. */
function isHarmless({ body, method, query }: ModelRequest): boolean {
  if (query.has("dryRun")) return true;
  return method === "PATCH" && [MIGRATING_ANNOTATION, OWNER_ANNOTATION].some((name) => body.includes(`"${name}":null`));
}
