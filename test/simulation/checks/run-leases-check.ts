import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import { holderOf, type Lease } from "../../../src/api/lease.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { currentWriter } from "../world/api-server-node.ts";
import type { Check } from "./check.ts";
import { type SeenWorld, Writers } from "./writers.ts";

const RUN_LEASE = /^\/registry\/leases\/[^/]+\/ksvm-migrate\./;
const LEADER_LEASE = new RegExp(`^/registry/leases/${SYSTEM_NAMESPACE}/${CONTROLLER_LEASE}$`);
const DURATION_SECONDS = 15;
/** Whatever it says, it is waited for no longer. */
const MAX_DURATION_SECONDS = 60;

/**
 * A Lease of a run, and that of the leader, is written by its holder alone, until it stood still for its whole duration. One of a run of a replica of the controller has
 * stood still also where the Lease of the leader has: a replica that does not lead any more ends its runs, and does nothing but clean up.
 */
export class RunLeasesCheck implements Check {
  readonly name = "Leases of runs";
  readonly #world: SeenWorld;
  readonly #writers: Writers;
  /** When each was last written, by key. A restore makes that unknown. */
  readonly #writtenAt = new Map<string, number>();
  /** When each got the spec that it has, by key and spec: who waits for it compares specs, and sees no edit that another one has undone. */
  readonly #specsAt = new Map<string, Map<string, number>>();
  /** Whom each holder of the Lease of the leader replaced, after that had stood still for its duration. */
  readonly #replaced = new Map<string, string>();

  /** @param writer as `FreezesCheck` has it */
  constructor(world: SeenWorld, writer: () => string | undefined = currentWriter) {
    this.#world = world;
    const { etcd } = world.cluster;
    this.#writers = new Writers(world, writer);
    etcd.onRevision((entry) => this.#written(entry));
    etcd.onRestore(() => {
      this.#writtenAt.clear();
      this.#specsAt.clear();
    });
  }

  #written(entry: EtcdEntry): void {
    const isOfLeader = LEADER_LEASE.test(entry.key);
    if (!isOfLeader && !RUN_LEASE.test(entry.key)) return;
    const { now } = this.#world.schedule;
    const writtenAt = this.#writtenAt.get(entry.key);
    const writer = this.#writers.of(entry);
    this.#writtenAt.set(entry.key, this.#standsSince(entry, writer === undefined));
    if (isOfLeader && writtenAt !== undefined) this.#leads(entry, now - writtenAt);
    if (writtenAt !== undefined && writer !== undefined) this.#judge(entry, writer, now - writtenAt);
  }

  #standsSince({ key, object }: EtcdEntry, isEdit: boolean): number {
    const { now } = this.#world.schedule;
    const spec = JSON.stringify((object as unknown as Lease).spec);
    const before = isEdit ? this.#specsAt.get(key) : undefined;
    const since = before?.get(spec) ?? now;
    this.#specsAt.set(key, new Map([...(before ?? []), [spec, since]]));
    return since;
  }

  #leads({ before, isDeleted, object }: EtcdEntry, stoodMs: number): void {
    const earlier = before?.isDeleted === false ? (before.object as unknown as Lease) : undefined;
    const [from, to] = [holderOf(earlier), isDeleted ? "" : holderOf(object as unknown as Lease)];
    if (from === to) return;
    // One that leads again begins other runs.
    for (const [by, replaced] of this.#replaced) if (replaced === to) this.#replaced.delete(by);
    if (from !== "" && stoodMs >= leaseMsOf(earlier)) this.#replaced.set(to, from);
  }

  #isReplaced(holder: string, writer: string): boolean {
    return [...this.#replaced].some(([to, from]) => to.startsWith(`${writer}_`) && holder.startsWith(`${from}/`));
  }

  #judge(entry: EtcdEntry, writer: string, stoodMs: number): void {
    const before = entry.before?.isDeleted === false ? (entry.before.object as unknown as Lease) : undefined;
    const holder = holderOf(before);
    if (holder === "" || holder.startsWith(`${writer}_`)) return;
    const after = entry.isDeleted ? undefined : (entry.object as unknown as Lease);
    const text = `Lease: ${writer} wrote that of ${holder} at revision ${entry.modRevision}`;
    if (!holderOf(after).startsWith(`${writer}_`)) {
      this.#world.violate(`${text}, which it does not hold`);
      return;
    }
    if (stoodMs < leaseMsOf(before) && !this.#isReplaced(holder, writer))
      this.#world.violate(`${text}, ${Math.round(stoodMs)} ms after it was written`);
  }
}

/** How long a Lease of a run is its holder's alone after it was written, in milliseconds. */
export function leaseMsOf(lease: Lease | undefined): number {
  return Math.min(lease?.spec?.leaseDurationSeconds ?? DURATION_SECONDS, MAX_DURATION_SECONDS) * 1_000;
}
