import { isFinished, resourceNameOf, type StorageVersionMigration } from "../../../src/api/migration.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { ControllerProgram } from "../programs/controller-program.ts";
import { currentWriter } from "../world/api-server-node.ts";
import type { World } from "../world/world.ts";
import type { Check } from "./check.ts";

const MIGRATION_PREFIX = "/registry/migration.k8s.io/storageversionmigrations/";

/** A migration that a user suspended is neither deleted nor replaced by a controller, as long as its resource is there. */
export class SuspendedCheck implements Check {
  readonly name = "suspended migrations";
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
    world.cluster.etcd.onRevision((entry) => this.#written(entry));
  }

  #written({ before, isDeleted, key, object }: EtcdEntry): void {
    if (!isDeleted || before === undefined || !key.startsWith(MIGRATION_PREFIX)) return;
    const { cluster, plan, programs } = this.#world;
    const writer = programs.find((program) => program?.process.name === currentWriter());
    const migration = object as unknown as StorageVersionMigration;
    const { metadata, spec } = migration;
    if (!(writer instanceof ControllerProgram) || spec.suspend !== true || isFinished(migration)) return;
    const resource = resourceNameOf(spec.resource);
    const isBuiltIn = plan.kinds.some((kind) => kind.isBuiltIn === true && resource.startsWith(`${kind.plural}.`));
    if (isBuiltIn || cluster.etcd.get(`${CRD_PREFIX}${resource}`) !== undefined) {
      this.#world.violate(`suspended: ${writer.process.name} deleted ${metadata.name}, which its user had suspended`);
    }
  }
}
