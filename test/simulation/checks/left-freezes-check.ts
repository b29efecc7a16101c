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

  constructor(world: World) {
    this.#world = world;
    world.cluster.etcd.onRestore(() => {
      for (const program of world.programs) if (program !== undefined) this.#restored.add(program.process.name);
    });
    world.witnesses.push(({ name }) => ({ told: () => undefined, ended: () => this.#judge(new Set([name])) }));
  }

  async finish(): Promise<void> {
    this.#judge(new Set(this.#world.programs.flatMap((program) => program?.process.name ?? [])));
  }

  #judge(names: ReadonlySet<string>): void {
    const cleaned = new Set(
      this.#world.programs.flatMap((program) => (program?.hasCleanedUp === true ? [program.process.name] : [])),
    );
    for (const { object } of this.#world.cluster.etcd.range(CRD_PREFIX)) {
      const { metadata } = object as unknown as CustomResourceDefinition;
      const freezer = freezerOf(metadata);
      const name = freezer?.kind === "run" ? freezer.owner.identity.replace(/_1$/, "") : "";
      const isJudged = names.has(name) && cleaned.has(name) && !this.#restored.has(name);
      if (isJudged) this.#world.violate(`freeze: ${name} has ended and left that of ${metadata.name}`);
    }
  }
}
