import { holderOf, type Lease } from "../../../src/api/lease.ts";
import { leaseNameOf } from "../../../src/lease/lease-acquire.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { currentWriter } from "../world/api-server-node.ts";
import { isByKsvm, type World } from "../world/world.ts";

const LEASES = "/registry/leases/kube-system/";

/** Who holds the Leases of runs, at every revision. */
export class LeaseHolders {
  readonly #world: World;
  readonly #held = new Map<string, { readonly holder: string; readonly since: number }>();
  /** Those that others wrote: they say nothing about who lives. */
  readonly #edited = new Set<string>();

  constructor(world: World) {
    this.#world = world;
    world.cluster.etcd.onRevision((entry) => entry.key.startsWith(LEASES) && this.#written(entry));
  }

  /** Whether a process holds the Lease of a resource, and has since a moment. */
  isHeldBy(process: string, resource: string, since: number): boolean {
    const key = `${LEASES}${leaseNameOf(resource)}`;
    const held = this.#held.get(key);
    return held !== undefined && !this.#edited.has(key) && held.since <= since && held.holder.startsWith(`${process}_`);
  }

  /** Whether another process than this one holds the Lease of a resource. */
  isTakenFrom(process: string, resource: string): boolean {
    const { holder = "" } = this.#held.get(`${LEASES}${leaseNameOf(resource)}`) ?? {};
    return holder !== "" && !holder.startsWith(`${process}_`);
  }

  #written({ key, object, isDeleted }: EtcdEntry): void {
    if (!isByKsvm() && currentWriter() !== undefined) this.#edited.add(key);
    const holder = isDeleted ? "" : holderOf(object as unknown as Lease);
    if (this.#held.get(key)?.holder !== holder) this.#held.set(key, { holder, since: this.#world.schedule.now });
  }
}
