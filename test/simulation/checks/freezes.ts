import { type CustomResourceDefinition, storageVersionsOf } from "../../crd.ts";
import { holderOf, type Lease } from "../../lease.ts";
import { freezerOf } from "../../../src/freeze/freeze.ts";
import { MIGRATING } from "../../../src/freeze/rule.ts";
import { CRDS } from "../../../src/kube/objects.ts";
import type { ModelRequest } from "../model/answers.ts";
import type { EtcdEntry } from "../model/etcd.ts";
import { CRD_PREFIX } from "../model/kinds.ts";
import { currentRequestSince, currentWriter } from "../world/api-server.ts";
import { crdNameOf, objectsPrefixOf } from "../world/kinds.ts";
import { isByKsvm, type World } from "../world/world.ts";
import { crdIn } from "./past.ts";

/** A freeze of a run, as etcd tells of it. */
interface Freeze {
  /** The process that put it on. */
  readonly by: string;
  readonly at: number;
  /** Since when the run rests on it: it wrote an object. */
  restsSince: number;
  /** When the run wrote an object last. */
  wroteAt: number;
}

/** A guard that others damaged so shortly before the freeze may have proven it, in milliseconds: API servers follow it late. */
const LATE_MS = 60_000;
/** A run that does not get on takes its freeze off after five minutes. What it waits for before its first write counts as well, in milliseconds. */
const IDLE_MS = 900_000;
const LOOK_EVERY_MS = 60_000;
const GUARDS = /^\/registry\/validating(admissionpolic|webhookconfigurations\/)/;

/**
 * What a freeze is for, and what it must not become. While a run rests on its freeze the storage version stays, unless others
 * damage what guards it. ksvm takes off no freeze of other clients, and none of a run that holds its Lease. A run that ends takes its own off, or
 * says that it could not. And one that does not get on takes it off as well, as long as it can.
 */
export function checkFreezes(world: World): void {
  const { etcd } = world.cluster;
  const { schedule } = world;
  const freezes = new Map<string, Freeze>();
  const kinds = world.plan.kinds.map((kind) => ({ name: crdNameOf(kind), prefix: objectsPrefixOf(kind) }));
  /** When each Lease was written last. */
  const renewed = new Map<string, number>();
  /** Runs that ended, and said that all is clean: an API server that hangs may freeze for them later. */
  const cleaned = new Set<string>();
  let damagedAt = Number.NEGATIVE_INFINITY;

  const judgeStorage = (freeze: Freeze, before: CustomResourceDefinition, after: CustomResourceDefinition): void => {
    const [from, to] = [storageVersionsOf(before).join(), storageVersionsOf(after).join()];
    // Admission passed it before the run rested on its freeze, and etcd was slow.
    const isLate = (currentRequestSince() ?? Number.NEGATIVE_INFINITY) < freeze.restsSince;
    if (from === to || isLate || damagedAt > freeze.at - LATE_MS) return;
    world.violate(
      `freeze: ${currentWriter()} changed the storage version of ${after.metadata.name} from ${from} to ${to} while ${freeze.by} rests on its freeze`,
    );
  };
  const judgeChange = (before: CustomResourceDefinition): void => {
    const freezer = freezerOf(before.metadata);
    const writer = currentWriter() ?? "";
    if (!isByKsvm() || freezer === undefined) return;
    const what = `freeze: ${writer} changed that of ${before.metadata.name}`;
    if (freezer === "other") return world.violate(`${what}, which another client had put on`);
    const { identity, lease } = freezer;
    if (identity.startsWith(`${writer}_`)) return;
    const key = `/registry/leases/${lease}`;
    const held = etcd.get(key)?.object as Lease | undefined;
    const ageMs = schedule.now - (renewed.get(key) ?? Number.NEGATIVE_INFINITY);
    if (holderOf(held) === identity && ageMs < (held?.spec?.leaseDurationSeconds ?? 0) * 1_000)
      world.violate(`${what}, which is that of ${identity}, a run that holds its Lease`);
  };
  const judgeLeft = (crd: CustomResourceDefinition, names: ReadonlySet<string>): void => {
    const name = processOf(crd);
    if (name !== undefined && names.has(name))
      world.violate(`freeze: ${name} has ended and left that of ${crd.metadata.name}`);
  };
  const crdWritten = (name: string, { before, isDeleted, object }: EtcdEntry): void => {
    const after = crdIn({ object });
    const earlier = before === undefined || before.isDeleted ? undefined : crdIn(before);
    const freeze = freezes.get(name);
    if (isDeleted || earlier?.metadata.uid !== after.metadata.uid) freezes.delete(name);
    if (isDeleted || earlier === undefined) return;
    if (freeze !== undefined) judgeStorage(freeze, earlier, after);
    judgeLeft(after, cleaned);
    if (marksOf(earlier) === marksOf(after)) return;
    judgeChange(earlier);
    freezes.delete(name);
    const by = processOf(after);
    const { now } = schedule;
    if (by !== undefined && isByKsvm())
      freezes.set(name, { by, at: now, restsSince: Number.POSITIVE_INFINITY, wroteAt: now });
  };
  const guardWritten = ({ isDeleted }: EtcdEntry): void => {
    if (!isByKsvm()) damagedAt = schedule.now;
    else if (isDeleted) {
      // Who removes a guard lifts the freeze next: its own, or that of a dead run.
      for (const freeze of freezes.values()) {
        const isDead = world.programNamed(freeze.by)?.end !== undefined;
        if (isDead || freeze.by === currentWriter()) freeze.restsSince = Number.POSITIVE_INFINITY;
      }
    }
  };
  etcd.onRevision((entry) => {
    const { key } = entry;
    if (key.startsWith("/registry/leases/")) renewed.set(key, schedule.now);
    else if (key.startsWith(CRD_PREFIX)) crdWritten(key.slice(CRD_PREFIX.length), entry);
    else if (GUARDS.test(key)) guardWritten(entry);
    else {
      const freeze = freezes.get(kinds.find(({ prefix }) => key.startsWith(prefix))?.name ?? "");
      if (freeze === undefined || currentWriter() !== freeze.by) return;
      freeze.wroteAt = schedule.now;
      freeze.restsSince = Math.min(freeze.restsSince, schedule.now);
    }
  });
  world.onEnd.push(({ process: { name }, plan }, { how, isUnclean = false }) => {
    if (how === "crashed" || isUnclean || plan.run === "reencrypt") return;
    cleaned.add(name);
    for (const entry of etcd.range(CRD_PREFIX)) judgeLeft(crdIn(entry), new Set([name]));
  });

  const unanswered = unansweredOf(world);
  const look = (): void => {
    for (const [name, { at, by, wroteAt }] of freezes) {
      const program = world.programNamed(by);
      if (program === undefined || program.end !== undefined || program.process.isPaused) continue;
      const since = Math.max(at, wroteAt, program.process.wokeAt, unanswered(by));
      if (schedule.now - since > IDLE_MS) world.violate(`freeze: ${by} keeps that of ${name}, and does not get on`);
    }
    schedule.in(LOOK_EVERY_MS, look);
  };
  look();
}

/** When each process last sent a request for a CRD that got no good answer: without one a freeze cannot be taken off. */
function unansweredOf({ cluster, schedule }: World): (process: string) => number {
  const sent = new Map<string, Map<ModelRequest, number>>();
  cluster.onRequest((request) => {
    if (!isNeeded(request)) return;
    const open = sent.get(request.user) ?? new Map<ModelRequest, number>();
    sent.set(request.user, open.set(request, schedule.now));
  });
  cluster.onAnswer((request, { status }) => {
    if (status < 400) sent.get(request.user)?.delete(request);
  });
  return (process) => Math.max(Number.NEGATIVE_INFINITY, ...(sent.get(process)?.values() ?? []));
}

/** A run that proves its freeze is denied its dry-runs all the time. */
function isNeeded({ path, query }: ModelRequest): boolean {
  return path.startsWith(CRDS) && !query.has("watch") && !query.has("dryRun");
}

/** The process whose run has frozen a CRD. */
function processOf({ metadata }: CustomResourceDefinition): string | undefined {
  const freezer = freezerOf(metadata);
  return typeof freezer === "object" ? freezer.identity.replace(/_1.*$/, "") : undefined;
}

/** The annotation, and whose it is. */
function marksOf({ metadata }: CustomResourceDefinition): string {
  const freezer = freezerOf(metadata);
  const owner = typeof freezer === "object" ? freezer.identity : freezer;
  return `${metadata.annotations?.[MIGRATING]} ${owner}`;
}
