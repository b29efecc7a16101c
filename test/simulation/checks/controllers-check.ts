import {
  type CustomResourceDefinition,
  isClean,
  storageVersionHashOf,
  storageVersionOf,
  storedVersionsOf,
} from "../../../src/api/crd.ts";
import {
  isFinished,
  isSuspended,
  resourceNameOf,
  type StorageState,
  type StorageVersionMigration,
  stateOf,
} from "../../../src/api/migration.ts";
import {
  CREATED_BY_LABEL,
  CREATED_BY_TRIGGER,
  HASH_ANNOTATION,
  MIGRATING_ANNOTATION,
  STORED_VERSIONS_ANNOTATION,
  WEBHOOK_NAME,
} from "../../../src/api/names.ts";
import { MIGRATIONS, objectPath, STORAGE_STATES, WEBHOOK_CONFIGURATIONS } from "../../../src/kube/resources.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import { areUnmanaged } from "../actions/choices.ts";
import { isServing, type KindPlan } from "../plan.ts";
import { ControllerProgram, restartReplicas } from "../programs/controller-program.ts";
import { crdNameOf, prefixOf, resourceOf } from "../world/kinds.ts";
import { isByKsvm, type World } from "../world/world.ts";
import type { Check } from "./check.ts";
import { servedBy, storedVersionsOf as storedOf } from "./served-storage.ts";
import { deleteOwnPolicies, insist, isForeign, isPutRight, liftOwnFreezes, putRight } from "./user-repairs.ts";
import { MIGRATIONS_PREFIX, STATES_PREFIX, UserWords } from "./user-words.ts";

/** Of the guards of runs. */
const POLICIES = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"].map(
  (resource) => `/registry/${resource}/ksvm-freeze.`,
);

/**
 * After the last disturbance all that the trigger and the leader have to do is done in this time, in milliseconds. What was measured at
 * most is 14 minutes. The trigger may pause for as long as a migration failed again and again before that, which is 40 minutes.
 */
const LIVENESS_MS = 90 * 60_000;
/** What a replica may take to stop, in milliseconds. One that does nothing needs a few. */
const STOP_MS = 60_000;
/** What API servers take to follow, in milliseconds. */
const FOLLOW_MS = 65_000;
/** How long a controller without work is watched, in milliseconds. */
const IDLE_MS = 600_000;
/** For how long nothing may be left to do before that, and how often it may begin again. */
const REST_MS = 60_000;
const MAX_TURNS = 5;
/** How often idle replicas may create a migration while they are watched. */
const IDLE_TURNS = 3;
/**
 * How many requests each replica may send in a second then, and while a migration waits for a user. Two that serve the webhook and look
 * after a built-in resource behind one address send one each.
 */
const IDLE_REQUESTS = 1.5;
const WAITING_REQUESTS = 4;
/**
 * So many migrations may the trigger create in a world; nine was the most in 900 of them. A webhook that denies half of what is written of their
 * status for a quarter of an hour has six resources migrated five times each: the pause doubles each time.
 */
const MAX_CREATED = 40;

/**
 * Once the disturbances are over, replicas of the controller that live finish what there is to do: each migration ends, or waits
 * for a user; each CRD whose storage version changed is migrated and pruned, with no freeze left; and idle replicas ask little.
 */
export class ControllersCheck implements Check {
  readonly name = "controllers";
  readonly #world: World;
  readonly #hasTrigger: boolean;
  #created = 0;
  #looked: { readonly revision: number; readonly left: string | undefined } | undefined;
  /** What is not ksvm's to answer for. */
  readonly #words: UserWords;

  constructor(world: World) {
    this.#world = world;
    this.#words = new UserWords(world);
    this.#hasTrigger = world.plan.programs.some(({ run, trigger }) => run === "controller" && trigger !== "off");
    world.cluster.etcd.onRevision(({ before, key, object }) => {
      const isNew = before === undefined || before.isDeleted;
      const isOfTrigger = object.metadata.labels?.[CREATED_BY_LABEL] === CREATED_BY_TRIGGER;
      if (!key.startsWith(MIGRATIONS_PREFIX) || !isNew || !isByKsvm() || !isOfTrigger) return;
      this.#created++;
      if (this.#created > MAX_CREATED) world.violate(`controllers: ksvm created ${this.#created} migrations`);
    });
  }

  async finish(): Promise<void> {
    const { schedule } = this.#world;
    const replicas = this.#world.programs.filter((program) => program instanceof ControllerProgram);
    for (const { endText, end, process } of replicas) {
      if (end !== undefined && end !== "crash" && end !== "stopped")
        this.#violate(`controllers: ${process.name} ended: ${endText}`);
    }
    if (replicas.length === 0) return;
    const living = restartReplicas(this.#world);
    await putRight(this.#world, () => this.#repeat());
    if (isPutRight(this.#world)) await putRight(this.#world, () => this.#putRight());
    if (!(await schedule.run(() => this.#isOver, LIVENESS_MS))) this.#violate(`liveness: ${this.#leftToDo()}`);
    if (this.#world.plan.seed % 8 === 0) await this.#watchIdle(living.length);
    await this.#stop(living);
  }

  /** Users have deleted their policies, and resumed what they suspended: where etcd was restored since, they do so again. */
  async #repeat(): Promise<void> {
    const world = this.#world;
    await deleteOwnPolicies(world);
    for (const { metadata } of this.#migrations().filter(isSuspended)) {
      const path = objectPath(MIGRATIONS, { name: metadata.name });
      await insist(world, () => world.user.merge(path, { spec: { suspend: null } }));
    }
  }

  /** Users lift their freezes, and delete what they edited and the migrations whose freeze they lifted. */
  async #putRight(): Promise<void> {
    const world = this.#world;
    await liftOwnFreezes(world);
    for (const migration of this.#migrations()) {
      const { name } = migration.metadata;
      if (!isLifted(migration) && !this.#words.isEdited(`${MIGRATIONS_PREFIX}${name}`)) continue;
      await insist(world, () => world.user.send("DELETE", objectPath(MIGRATIONS, { name })));
    }
    for (const kind of world.plan.kinds) {
      const name = resourceOf(kind);
      if (!this.#words.has(name)) continue;
      await insist(world, () => world.user.send("DELETE", objectPath(STORAGE_STATES, { name })));
    }
  }

  async #watchIdle(replicas: number): Promise<void> {
    const { cluster, schedule } = this.#world;
    let [sent, created] = [0, 0];
    // A leader that sees the clock of an API server for the first time may migrate once more.
    for (let turns = 0; turns < IDLE_TURNS && (turns === 0 || created > 0); turns++) {
      await this.#comeToRest();
      const before = { requests: cluster.requests, created: this.#created };
      await schedule.run(() => this.#world.isBroken, IDLE_MS);
      [sent, created] = [cluster.requests - before.requests, this.#created - before.created];
    }
    if (created > 0) this.#violate(`controllers: idle replicas created ${created} migrations in ${IDLE_MS / 1_000} s`);
    const isWaiting = this.#migrations().some((migration) => !isFinished(migration));
    const allowed = ((isWaiting ? WAITING_REQUESTS : IDLE_REQUESTS) * replicas * IDLE_MS) / 1_000;
    const what = `${replicas} ${isWaiting ? "waiting" : "idle"} replicas sent ${sent} requests in ${IDLE_MS / 1_000} s`;
    if (sent > allowed) this.#violate(`controllers: ${what}`);
    this.#world.tell("controllers", what);
    const left = this.#leftToDo();
    if (left !== undefined) this.#violate(`controllers: idle replicas began something: ${left}`);
  }

  /** What was done last is told to all, and the trigger may find that it proves nothing yet: then it tries again. */
  async #comeToRest(): Promise<void> {
    const { schedule } = this.#world;
    for (let turns = 0; turns < MAX_TURNS; turns++) {
      await schedule.run(() => this.#world.isBroken, REST_MS);
      if (this.#world.isBroken || this.#leftToDo() === undefined) return;
      if (!(await schedule.run(() => this.#isOver, LIVENESS_MS))) break;
    }
    this.#violate(`liveness: replicas do not come to rest: ${this.#leftToDo()}`);
  }

  async #stop(living: readonly ControllerProgram[]): Promise<void> {
    for (const program of living) {
      const problem = program.problem();
      if (problem !== undefined) this.#violate(`controllers: /livez of ${program.process.name}: ${problem}`);
      program.interrupt();
    }
    const isOver = (): boolean => this.#world.isBroken || living.every(({ end }) => end !== undefined);
    if (!(await this.#world.schedule.run(isOver, STOP_MS))) this.#violate("liveness: a replica does not stop");
    for (const { end, endText, process } of living) {
      if (end !== "stopped" && !this.#world.isBroken) this.#violate(`controllers: ${process.name} ended: ${endText}`);
    }
    if (this.#world.plan.programs.some(isServing)) await this.#uninstall();
  }

  /** As `kubectl delete -k` does: without a replica the webhook would deny every change of a frozen CRD. */
  async #uninstall(): Promise<void> {
    const { schedule, user } = this.#world;
    void user.send("DELETE", objectPath(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }));
    await schedule.run(() => this.#world.isBroken, FOLLOW_MS);
  }

  get #isOver(): boolean {
    return this.#world.isBroken || this.#leftToDo() === undefined;
  }

  /** What it was the last time, as long as nothing is written. */
  #leftToDo(): string | undefined {
    const { revision } = this.#world.cluster.etcd;
    if (this.#looked?.revision !== revision) this.#looked = { revision, left: this.#look() };
    return this.#looked.left;
  }

  #look(): string | undefined {
    for (const migration of this.#migrations()) {
      const { name } = migration.metadata;
      if (!isFinished(migration) && !this.#waitsForUser(migration))
        return `a migration is ${stateOf(migration)} (${name})`;
    }
    for (const kind of this.#world.plan.kinds) {
      const left = this.#leftOf(kind);
      if (left !== undefined) return left;
    }
    return this.#leftPolicy();
  }

  #leftPolicy(): string | undefined {
    const { etcd } = this.#world.cluster;
    const [left] = POLICIES.flatMap((prefix) => etcd.range(prefix));
    return left && `${left.key} is left`;
  }

  #migrations(): readonly StorageVersionMigration[] {
    return this.#world.cluster.etcd
      .range(MIGRATIONS_PREFIX)
      .map(({ object }) => object as unknown as StorageVersionMigration);
  }

  #waitsForUser(migration: StorageVersionMigration): boolean {
    const name = resourceNameOf(migration.spec.resource);
    return isForeign(this.#crdOf(name));
  }

  #leftOf(kind: KindPlan): string | undefined {
    return kind.isBuiltIn === true ? this.#leftOfBuiltIn(kind) : this.#leftOfCrd(kind);
  }

  #leftOfBuiltIn(kind: KindPlan): string | undefined {
    const { cluster } = this.#world;
    const name = resourceOf(kind);
    if (!this.#hasTrigger || this.#words.has(name)) return undefined;
    const stored = storedOf(cluster, kind);
    const other = cluster.etcd.range(prefixOf(kind)).find(({ object }) => !stored.has(object.apiVersion));
    if (other !== undefined) return `${other.key} is stored as ${other.object.apiVersion}`;
    return this.#leftOfState(name, servedBy(cluster, kind)[0]?.storageVersionHash ?? "");
  }

  #leftOfCrd(kind: KindPlan): string | undefined {
    const name = crdNameOf(kind);
    const crd = this.#crdOf(name);
    if (crd === undefined || isForeign(crd)) return undefined;
    if (crd.metadata.annotations?.[MIGRATING_ANNOTATION] !== undefined) return `${name} is frozen`;
    if (!this.#hasTrigger || this.#words.has(name) || this.#isLiftedByUser(name, crd)) return undefined;
    if (this.#isToBeListedByUser(crd)) return undefined;
    if (!isClean(crd) && !areUnmanaged(this.#world.plan))
      return `storedVersions of ${name} is [${storedVersionsOf(crd).join(" ")}]`;
    return this.#leftOfState(name, storageVersionHashOf(crd.spec.group, storageVersionOf(crd), crd.spec.names.kind));
  }

  /** One that does not change CRDs says that a user has to, where another client took the storage version out of storedVersions. */
  #isToBeListedByUser(crd: CustomResourceDefinition): boolean {
    return areUnmanaged(this.#world.plan) && !storedVersionsOf(crd).includes(storageVersionOf(crd));
  }

  #leftOfState(name: string, hash: string): string | undefined {
    const found = this.#world.cluster.etcd.get(`${STATES_PREFIX}${name}`)?.object;
    const persisted = (found as unknown as StorageState | undefined)?.status?.persistedStorageVersionHashes ?? [];
    return persisted.length === 1 && persisted[0] === hash
      ? undefined
      : `the StorageState of ${name} says [${persisted.join(", ")}], and its hash is ${hash}`;
  }

  /** Break-glass is final: the trigger leaves the CRD alone then, until its storage version or its storedVersions change. */
  #isLiftedByUser(name: string, crd: CustomResourceDefinition): boolean {
    const { group, names } = crd.spec;
    const hash = storageVersionHashOf(group, storageVersionOf(crd), names.kind);
    const lifted = this.#migrations().filter((one) => isLifted(one) && resourceNameOf(one.spec.resource) === name);
    return lifted.some(({ metadata: { annotations = {} } }) => {
      const failedFor = annotations[HASH_ANNOTATION];
      const stored = annotations[STORED_VERSIONS_ANNOTATION];
      return failedFor === undefined || (failedFor === hash && stored === storedVersionsOf(crd).join(","));
    });
  }

  #crdOf(name: string): CustomResourceDefinition | undefined {
    return this.#world.cluster.etcd.get(`${CRD_PREFIX}${name}`)?.object as unknown as
      | CustomResourceDefinition
      | undefined;
  }

  #violate(violation: string): void {
    if (!this.#world.isBroken) this.#world.violate(violation);
  }
}

/** Whether another client lifted the freeze of its run. */
function isLifted({ status }: StorageVersionMigration): boolean {
  return status?.conditions?.some(({ reason, type }) => type === "Failed" && reason === "FreezeLifted") === true;
}
