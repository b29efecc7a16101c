import { holderOf, type Lease } from "../../../src/api/lease.ts";
import { SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import { leaseNameOf } from "../../../src/lease/lease-acquire.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { currentWriter } from "../world/api-server-node.ts";
import { leaseMsOf } from "./run-leases-check.ts";
import type { SeenWorld } from "./writers.ts";

/** Where commands have the Leases of their runs, and where replicas of the controller have those of theirs. */
const OF_COMMANDS = "/registry/leases/kube-system/";
const OF_REPLICAS = `/registry/leases/${SYSTEM_NAMESPACE}/`;

/** Who holds a Lease, and until when nobody else may take it, in simulated milliseconds. */
interface Held {
  readonly holder: string;
  readonly since: number;
  readonly until: number;
}

/** Who holds the Leases of runs, at every revision. */
export class LeaseHolders {
  readonly #world: SeenWorld;
  readonly #writer: () => string | undefined;
  readonly #held = new Map<string, Held>();
  /** Those that others wrote last: they say nothing about who lives. */
  readonly #edited = new Set<string>();

  /** @param writer as `FreezesCheck` has it */
  constructor(world: SeenWorld, writer: () => string | undefined = currentWriter) {
    this.#world = world;
    this.#writer = writer;
    const { etcd } = world.cluster;
    etcd.onRestore(() => {
      for (const key of this.#held.keys()) this.#restored(key, etcd.get(key)?.object as Lease | undefined);
    });
    etcd.onRevision((entry) => {
      if (entry.key.startsWith(OF_COMMANDS) || entry.key.startsWith(OF_REPLICAS)) this.#written(entry);
    });
  }

  /**
   * Whether a process holds the Lease of a resource, has since a moment, and has written it within its duration: one that stood still for
   * so long belongs to a run that ended, and anyone may clean up after that.
   */
  isHeldBy(process: string, resource: string, since: number): boolean {
    return [OF_COMMANDS, OF_REPLICAS].some((leases) => {
      const key = `${leases}${leaseNameOf(resource)}`;
      const held = this.#held.get(key);
      if (held === undefined || this.#edited.has(key) || held.since > since) return false;
      return held.holder.startsWith(`${process}_`) && this.#world.schedule.now < held.until;
    });
  }

  /** Whether another command than this one holds the Lease of a resource. */
  isTakenFrom(process: string, resource: string): boolean {
    const { holder = "" } = this.#held.get(`${OF_COMMANDS}${leaseNameOf(resource)}`) ?? {};
    return holder !== "" && !holder.startsWith(`${process}_`);
  }

  /** It may be that of a run that is dead by now, until its holder writes it again. */
  #restored(key: string, lease: Lease | undefined): void {
    const [holder, earlier] = [holderOf(lease), this.#held.get(key)];
    const since = earlier?.holder === holder ? earlier.since : this.#world.schedule.now;
    this.#held.set(key, { holder, since, until: Number.NEGATIVE_INFINITY });
  }

  #written({ key, object, isDeleted }: EtcdEntry): void {
    const writer = this.#writer();
    if (writer?.startsWith("ksvm") === false) this.#edited.add(key);
    else if (writer !== undefined) this.#edited.delete(key);
    const lease = isDeleted ? undefined : (object as unknown as Lease);
    const holder = holderOf(lease);
    const { now } = this.#world.schedule;
    const earlier = this.#held.get(key);
    const since = earlier?.holder === holder ? earlier.since : now;
    this.#held.set(key, { holder, since, until: now + leaseMsOf(lease) });
  }
}
