import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { holderOf, type Lease } from "../../../src/api/lease.ts";
import { MIGRATING_ANNOTATION } from "../../../src/api/names.ts";
import { freezerOf } from "../../../src/api/owner.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { SimEtcd } from "../model/etcd.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { currentWriter } from "../world/api-server-node.ts";
import type { Check } from "./check.ts";
import { type SeenWorld, Writers } from "./writers.ts";

/**
 * No program takes off a freeze that is not its own to take off: neither that of another client, nor that of a run that holds
 * its Lease and renews it.
 */
export class FreezesCheck implements Check {
  readonly name = "freezes";
  readonly #world: SeenWorld;
  readonly #writers: Writers;
  /** When each Lease was written last. A restore makes that unknown: it brings back those of dead runs. */
  readonly #renewed = new Map<string, number>();

  /** @param writer who writes the revision that etcd tells of at this moment: a program by its name, which its identity begins with */
  constructor(world: SeenWorld, writer: () => string | undefined = currentWriter) {
    this.#world = world;
    const { etcd } = world.cluster;
    this.#writers = new Writers(world, writer);
    etcd.onRevision((entry) => {
      if (entry.key.startsWith("/registry/leases/")) this.#renewed.set(entry.key, world.schedule.now);
      this.#written(etcd, entry);
    });
    etcd.onRestore(() => this.#renewed.clear());
  }

  #written(etcd: SimEtcd, entry: EtcdEntry): void {
    if (!entry.key.startsWith(CRD_PREFIX) || entry.isDeleted) return;
    const writer = this.#writers.of(entry);
    const before = entry.before?.object as CustomResourceDefinition | undefined;
    if (before === undefined || entry.before?.isDeleted === true || writer === undefined) return;
    const after = entry.object as unknown as CustomResourceDefinition;
    const freezer = freezerOf(before.metadata);
    if (freezer === undefined || freezeOf(before) === freezeOf(after)) return;
    const what = `${writer} changed the freeze of ${before.metadata.name} at revision ${entry.modRevision}`;
    if (freezer.kind === "other") {
      this.#world.violate(`freeze: ${what}, which another client had put on`);
      return;
    }
    const { identity, lease } = freezer.owner;
    if (identity.startsWith(`${writer}_`)) return;
    const key = `/registry/leases/${lease}`;
    const held = etcd.get(key)?.object as Lease | undefined;
    const ageMs = this.#world.schedule.now - (this.#renewed.get(key) ?? Number.NEGATIVE_INFINITY);
    if (holderOf(held) === identity && ageMs < (held?.spec?.leaseDurationSeconds ?? 0) * 1_000)
      this.#world.violate(`freeze: ${what}, which is that of ${identity}, a run that holds its Lease`);
  }
}

/** The value of the annotation and whose it is, where it is ksvm's. */
function freezeOf({ metadata }: CustomResourceDefinition): string {
  const freezer = freezerOf(metadata);
  const owner = freezer?.kind === "run" ? freezer.owner.identity : freezer?.kind;
  return `${metadata.annotations?.[MIGRATING_ANNOTATION]} ${owner}`;
}
