import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { freezerOf } from "../../../src/api/owner.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { World } from "../world/world.ts";
import type { Check } from "./check.ts";

/** A run that ended has taken its freeze off, or has said that it could not: only a crash leaves one, for the next run. */
export class LeftFreezesCheck implements Check {
  readonly name = "freezes that are left";
  readonly #world: World;
  /** A restore may bring a freeze back whose run has ended since. */
  #isRestored = false;

  constructor(world: World) {
    this.#world = world;
    world.cluster.etcd.onRestore(() => (this.#isRestored = true));
  }

  async finish(): Promise<void> {
    if (this.#isRestored) return;
    const ended = new Set(
      this.#world.programs.flatMap((program) => (program?.hasCleanedUp === true ? [program.process.name] : [])),
    );
    for (const { object } of this.#world.cluster.etcd.range(CRD_PREFIX)) {
      const { metadata } = object as unknown as CustomResourceDefinition;
      const freezer = freezerOf(metadata);
      const name = freezer?.kind === "run" ? freezer.owner.identity.replace(/_1$/, "") : "";
      if (ended.has(name)) this.#world.violate(`freeze: ${name} has ended and left that of ${metadata.name}`);
    }
  }
}
