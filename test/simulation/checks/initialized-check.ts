import { isFinished, isSuspended, resourceNameOf, type StorageVersionMigration } from "../../../src/api/migration.ts";
import { CREATED_BY_INIT, CREATED_BY_LABEL } from "../../../src/api/names.ts";
import { parseMigration } from "../../../src/api/parse-migration.ts";
import { shippedCrds } from "../../../src/initializer/shipped-crds.ts";
import { isAsWanted } from "../../../src/kube/drift.ts";
import { CRD_PREFIX, crdFactsOf, isStorageServed } from "../model/crd-registry.ts";
import type { ModelObject } from "../model/model-object.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { InitProgram } from "../programs/init-program.ts";
import { currentWriter } from "../world/api-server-node.ts";
import { LATEST_MS } from "../actions/api-server-actions.ts";
import type { World } from "../world/world.ts";
import type { Check } from "./check.ts";

const MIGRATIONS = "/registry/migration.k8s.io/storageversionmigrations/";
const LAST = "ksvm-last-init";
/** What an undisturbed one may take, in milliseconds: half a second was the most. */
const UNDISTURBED_MS = 120_000;

/**
 * What `ksvm init` promises: whatever ended earlier ones, a last one leaves the CRDs as they are shipped and one migration for each
 * resource: users who stopped one have resumed it by then. No other object is touched, no migration of others, and none that a user stopped.
 */
export class InitializedCheck implements Check {
  readonly name = "initialized";
  readonly #world: World;

  private constructor(world: World) {
    this.#world = world;
    world.cluster.etcd.onRevision((entry) => this.#written(entry));
  }

  /** @returns one for a world in which it runs. */
  static of(world: World): Check {
    const isInitialized = world.plan.programs.some(({ run }) => run === "init");
    return isInitialized ? new InitializedCheck(world) : { name: "initialized" };
  }

  async finish(): Promise<void> {
    const world = this.#world;
    // An API server that follows CRDs late serves those that are shipped once it knows of what users did last.
    await world.schedule.run(() => world.isBroken, LATEST_MS);
    if (world.isBroken) return;
    const last = new InitProgram(world, LAST);
    if (!(await world.schedule.run(() => world.isBroken || last.isAtRest, UNDISTURBED_MS))) {
      this.#violate("the last one does not end");
    }
    if (world.isBroken) return;
    const { result } = last;
    if (result === undefined) {
      this.#violate(`an undisturbed one ends with: ${last.endText}`);
      return;
    }
    if (result.unread.length > 0) this.#violate(`an undisturbed one cannot read ${JSON.stringify(result.unread)}`);
    this.#judgeCrds();
    this.#judgeMigrations(result.migrations.map(({ resource }) => resource));
  }

  #judgeCrds(): void {
    for (const shipped of shippedCrds()) {
      const live = this.#world.cluster.etcd.get(`${CRD_PREFIX}${shipped.metadata.name}`)?.object;
      const { group, scope, names } = shipped.spec;
      const versions = shipped.spec.versions.map(({ name, served, storage }) => ({ name, served, storage }));
      if (!isAsWanted(live, { spec: { group, scope, names, versions } })) {
        this.#violate(`CustomResourceDefinition "${shipped.metadata.name}" is not as it is shipped`);
      }
    }
  }

  #judgeMigrations(created: readonly string[]): void {
    const counts = new Map<string, number>();
    for (const { object } of this.#world.cluster.etcd.range(MIGRATIONS)) {
      const migration = migrationOf(object);
      if (migration === undefined || !isOfInit(migration)) continue;
      const name = resourceNameOf(migration.spec.resource);
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    for (const name of created) {
      if (counts.get(name) !== 1)
        this.#violate(`${counts.get(name) ?? 0} migrations of ${name} are left by the last one`);
    }
    const known = this.#world.plan.kinds.map(({ plural }) => `${plural}.sim.example.com`);
    for (const name of known) {
      const entry = this.#world.cluster.etcd.get(`${CRD_PREFIX}${name}`);
      // Where the storage version is not served, discovery shows no hash, and init skips the resource.
      const isShown = entry !== undefined && isStorageServed(crdFactsOf(entry));
      if (isShown && !created.includes(name)) this.#violate(`${name} has no migration`);
    }
  }

  #written({ key, before, isDeleted }: EtcdEntry): void {
    const writer = currentWriter() ?? "";
    if (!this.#isInit(writer)) return;
    const isShipped = key.startsWith(`${CRD_PREFIX}storage`) && key.endsWith(".migration.k8s.io");
    if (isShipped && !isDeleted) return;
    if (!key.startsWith(MIGRATIONS)) {
      this.#violate(`${writer} wrote ${key}`);
      return;
    }
    const migration = before?.isDeleted === false ? migrationOf(before.object) : undefined;
    if (migration === undefined) return;
    if (!isOfInit(migration)) this.#violate(`${writer} wrote or deleted ${key}, which is of others`);
    else if (isDeleted && isStopped(migration)) this.#violate(`${writer} deleted ${key}, which a user stopped`);
  }

  #isInit(writer: string): boolean {
    if (writer === LAST) return true;
    const [prefix, slot] = writer.split("-");
    return prefix === "ksvm" && this.#world.plan.programs[Number(slot)]?.run === "init";
  }

  #violate(text: string): void {
    this.#world.violate(`init: ${text}`);
  }
}

function migrationOf(object: ModelObject): StorageVersionMigration | undefined {
  // etcd has no resourceVersion: the API server makes it of the revision.
  const metadata = { ...object.metadata, resourceVersion: "1" };
  return parseMigration({ ...object, metadata }).object;
}

function isOfInit({ metadata }: StorageVersionMigration): boolean {
  return metadata.labels?.[CREATED_BY_LABEL] === CREATED_BY_INIT;
}

function isStopped(migration: StorageVersionMigration): boolean {
  return isSuspended(migration) && !isFinished(migration);
}
