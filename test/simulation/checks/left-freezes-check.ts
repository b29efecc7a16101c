import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { freezerOf } from "../../../src/api/owner.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { World } from "../world/world.ts";
import type { Check } from "./check.ts";

/** A run that ended has taken its freeze off, or has said that it could not: only a crash leaves one, for the next run. */
export class LeftFreezesCheck implements Check {
  readonly name = "freezes that are left";
  readonly #world: World;
  /** Those that ran before a restore, which may bring back a freeze that they have taken off. */
  readonly #restored = new Set<string>();
  /** Those that ended clean, also where others run in their slots: an API server that hangs may freeze for them later. */
  readonly #cleaned = new Set<string>();

  constructor(world: World) {
    this.#world = world;
    world.cluster.etcd.onRestore(() => {
      for (const program of world.programs) if (program !== undefined) this.#restored.add(program.process.name);
      for (const name of this.#cleaned) this.#restored.add(name);
    });
    world.cluster.etcd.onRevision(({ key, isDeleted, object }) => {
      if (key.startsWith(CRD_PREFIX) && !isDeleted) this.#judge(object, this.#cleaned);
    });
    world.witnesses.push(({ name }) => ({ told: () => undefined, ended: () => this.#ended(name) }));
  }

  async finish(): Promise<void> {
    for (const program of this.#world.programs) if (program !== undefined) this.#ended(program.process.name);
  }

  #ended(name: string): void {
    const program = this.#world.programs.find((one) => one?.process.name === name);
    if (program?.hasCleanedUp !== true) return;
    this.#cleaned.add(name);
    for (const { object } of this.#world.cluster.etcd.range(CRD_PREFIX)) this.#judge(object, new Set([name]));
  }

  #judge(object: unknown, names: ReadonlySet<string>): void {
    const { metadata } = object as CustomResourceDefinition;
    const freezer = freezerOf(metadata);
    const name = freezer?.kind === "run" ? freezer.owner.identity.replace(/_1$/, "") : "";
    const isLeft = names.has(name) && !this.#restored.has(name);
    if (isLeft) this.#world.violate(`freeze: ${name} has ended and left that of ${metadata.name}`);
  }
}
