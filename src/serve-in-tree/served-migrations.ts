import type { Logger } from "pino";
import { IN_TREE_FIELD_MANAGER } from "../api/names.ts";
import type { Clock } from "../clock.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { type InTreeMigration, inTreeResourceOf, inTreeStateOf, parseInTree } from "../in-tree/in-tree-migrations.ts";
import { isNotFound } from "../kube/absent.ts";
import { isConflict, type KubeObject } from "../kube/client.ts";
import { DoubtfulAnswer } from "../kube/errors.ts";
import { MERGE_PATCH, MIGRATIONS, type Resource } from "../kube/resources.ts";
import type { CallContext } from "../retry/call-context.ts";
import { Retrier } from "../retry/retrier.ts";
import { ToldOnce } from "../told-once.ts";
import { companionManifest, isCompanion } from "./companions.ts";
import { activeOf, type Companion, companionNameOf, leftOverOf, nextStepOf, type Step } from "./next-step.ts";
import { isProbe } from "./probe.ts";
import { latestVersionOf, type WantedResource, wantedResource } from "./probed-resource.ts";
import { begunConditions, completedConditions, endedConditions, type ServedEnd } from "./served-status.ts";
import { type Marking, markCrd } from "./storage-migrating.ts";

/** What {@link ServedMigrations} need. */
export interface ServedMigrationsOptions extends CallContext {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Migrations of Kubernetes' own migrator, in the version that is served. */
  readonly resource: Resource;
}

/** As upstream: a resource that was created just now may be missing in discovery, in milliseconds since its migration was first seen. */
const DISCOVERY_GRACE_MS = 60_000;
/** What is wrong with one migration or CRD alone keeps the others waiting no longer than this, in milliseconds. */
const PATIENCE = { maxIdleMs: 10_000, webhookWaitMs: 10_000 } as const;

/** Tries again for ten seconds at the most. */
export function patientRetrier(clock: Clock): Retrier {
  return new Retrier({ clock, random: Math.random, ...PATIENCE });
}

/** The migrations of Kubernetes' own migrator that are carried out, and the CRDs that say so. The state is in the cluster alone. */
export class ServedMigrations {
  readonly #options: ServedMigrationsOptions;
  /** By CRD: what its condition was last made to say. */
  readonly #marked: Map<string, string>;
  readonly #told = new ToldOnce();
  /** By uid, on the clock that never goes backwards: the API server's time of creation is of another clock. */
  readonly #seenSince = new Map<string, number>();

  /** @param marked the CRDs whose condition a process before this one set to True */
  constructor(options: ServedMigrationsOptions, marked: readonly string[]) {
    this.#options = options;
    this.#marked = new Map(marked.map((name) => [name, ""]));
  }

  /**
   * Does for each of them what is due. What goes wrong with one keeps no other from its turn.
   * @param companions by name
   * @returns whether there is more to do soon, although nothing changes
   * @throws the signal's reason
   */
  async advance(all: readonly InTreeMigration[], companions: ReadonlyMap<string, Companion>): Promise<boolean> {
    const { signal } = this.#options;
    const migrations = all.filter((one) => !isProbe(one));
    this.#see(migrations);
    const active = activeOf(migrations);
    const works = [
      ...leftOverOf(companions.values(), migrations).map((one) => ({ uid: one.uid, run: () => this.#drop(one) })),
      ...this.#unexplained(active).map((name) => ({ uid: name, run: () => this.#release(name) })),
      ...active.map((one) => ({
        uid: one.metadata.uid,
        run: () => this.#advanceOne(one, companions.get(companionNameOf(one))),
      })),
    ];
    this.#told.keepOnly(new Set(works.map(({ uid }) => uid)));
    let isMoreDue = false;
    for (const { uid, run } of works) {
      signal.throwIfAborted();
      try {
        isMoreDue = (await run()) || isMoreDue;
        this.#told.forget(uid);
      } catch (error) {
        signal.throwIfAborted();
        isMoreDue = true;
        this.#tellOf(uid, error);
      }
    }
    return isMoreDue;
  }

  #see(migrations: readonly InTreeMigration[]): void {
    const uids = new Set(migrations.map(({ metadata }) => metadata.uid));
    for (const gone of [...this.#seenSince.keys()].filter((uid) => !uids.has(uid))) {
      this.#seenSince.delete(gone);
    }
    const now = this.#options.clock.monotonic();
    for (const uid of uids) {
      this.#seenSince.set(uid, this.#seenSince.get(uid) ?? now);
    }
  }

  /** The CRDs that say that a migration runs, of which there is none any more. */
  #unexplained(active: readonly InTreeMigration[]): readonly string[] {
    const resources = new Set(active.map(inTreeResourceOf));
    return [...this.#marked.keys()].filter((name) => !resources.has(name));
  }

  /** A conflict, or what is gone, is seen in the next list. */
  #tellOf(uid: string, error: unknown): void {
    const reason = messageOf(error);
    if (!isConflict(error) && !isNotFound(error) && this.#told.isNews(uid, reason)) {
      this.#options.logger.warn({ reason }, "Cannot serve an in-tree migration; trying again");
    }
  }

  /**
   * Takes each step once: what another client's admission takes away of a status is written again in the next round.
   * @returns whether there is more to do soon
   */
  async #advanceOne(first: InTreeMigration, companion: Companion | undefined): Promise<boolean> {
    const taken = new Set<Step["type"]>();
    let migration = first;
    for (;;) {
      const step = nextStepOf(migration, companion);
      if (step === undefined || taken.has(step.type)) {
        // The next one of the same resource has its turn.
        return true;
      }
      taken.add(step.type);
      if (step.type === "follow") {
        const { name } = migration.metadata;
        await this.#mark(migration, { type: step.isAtWork ? "running" : "waiting", migration: name });
        return false;
      }
      const next = await this.#take(migration, step);
      if (next === undefined) {
        return step.type !== "work";
      }
      migration = next;
    }
  }

  /** @returns the migration as it is then; `undefined` where it has to wait */
  async #take(
    migration: InTreeMigration,
    step: Exclude<Step, { readonly type: "follow" }>,
  ): Promise<InTreeMigration | undefined> {
    const { logger } = this.#options;
    const of = { migration: migration.metadata.name, resource: inTreeResourceOf(migration) };
    switch (step.type) {
      case "begin": {
        logger.info(of, "Began to serve an in-tree migration");
        return this.#write(migration, { conditions: begunConditions(migration, this.#time()) });
      }
      case "note":
        return this.#ofResource(migration, async ({ resource }) => {
          const resourceVersion = await latestVersionOf(this.#options, resource);
          return this.#write(migration, { resourceVersion });
        });
      case "work":
        return this.#ofResource(migration, async (wanted) => {
          const isTaken = await this.#createCompanion(migration, wanted);
          return isTaken ? this.#end(migration, { type: "Failed", message: takenText(migration) }) : undefined;
        });
      case "end":
        return this.#end(migration, step.end);
      case "complete":
        await this.#mark(migration, { type: "ended", hasSucceeded: inTreeStateOf(migration) === "Succeeded" });
        this.#marked.delete(inTreeResourceOf(migration));
        logger.info({ ...of, outcome: inTreeStateOf(migration) }, "Served an in-tree migration");
        return this.#write(migration, { conditions: completedConditions(migration, this.#time()) });
    }
  }

  #end(migration: InTreeMigration, end: ServedEnd): Promise<InTreeMigration> {
    return this.#write(migration, { conditions: endedConditions(migration, end, this.#time()) });
  }

  /** Does something with what a migration is of, or ends it where that cannot be migrated. */
  async #ofResource(
    migration: InTreeMigration,
    work: (wanted: WantedResource) => Promise<InTreeMigration | undefined>,
  ): Promise<InTreeMigration | undefined> {
    try {
      return await work(await wantedResource(this.#options, inTreeResourceOf(migration)));
    } catch (error) {
      if (error instanceof KsvmError && error.code === "ResourceNotMigratable") {
        return this.#end(migration, { type: "Failed", message: error.message });
      }
      if (!(error instanceof KsvmError) || error.code !== "ResourceNotFound") {
        throw error;
      }
      const now = this.#options.clock.monotonic();
      const isNew = now - (this.#seenSince.get(migration.metadata.uid) ?? now) < DISCOVERY_GRACE_MS;
      return isNew
        ? undefined
        : this.#end(migration, { type: "Failed", message: "resource does not exist in discovery" });
    }
  }

  /**
   * @returns whether the name is taken by a migration that is no companion, and is not ours to delete
   * @throws {KsvmError} Conflict where it is that of a companion that was deleted and that a finalizer keeps: no run carries that out.
   */
  async #createCompanion(migration: InTreeMigration, { isCustom, resource }: WantedResource): Promise<boolean> {
    const { client, retrier, resource: inTree, signal } = this.#options;
    const manifest = companionManifest({ inTree, isCustom, migration, resource });
    try {
      await retrier.run(() => client.create(MIGRATIONS, manifest, { signal }), signal);
      return false;
    } catch (error) {
      if (!isConflict(error)) {
        throw error;
      }
    }
    // Else the feed is late to tell of it.
    const name = companionNameOf(migration);
    const taken = await retrier.run(() => client.find<KubeObject>(MIGRATIONS, { name }, { signal }), signal);
    if (taken?.metadata.deletionTimestamp !== undefined) {
      const text = `migration.migration.k8s.io "${name}" was deleted, and a finalizer keeps it`;
      throw new KsvmError("Conflict", `${text}; another one takes its place once it is gone`);
    }
    return taken !== undefined && !isCompanion(taken);
  }

  async #drop({ name, uid }: Companion): Promise<boolean> {
    const { client, retrier, signal } = this.#options;
    await retrier.run(() => client.delete(MIGRATIONS, { name }, { preconditions: { uid }, signal }), signal);
    return false;
  }

  async #release(crdName: string): Promise<boolean> {
    await markCrd(this.#options, crdName, { type: "ended", hasSucceeded: false }, () => this.#time());
    this.#marked.delete(crdName);
    this.#options.logger.info({ crd: crdName }, "Cleared the condition StorageMigrating of a migration that is gone");
    return false;
  }

  async #mark(migration: InTreeMigration, marking: Marking): Promise<void> {
    const crdName = inTreeResourceOf(migration);
    const text = JSON.stringify([migration.metadata.uid, marking]);
    // A name without a group is no CRD's.
    if (crdName.includes(".") && this.#marked.get(crdName) !== text) {
      await markCrd(this.#options, crdName, marking, () => this.#time());
      this.#marked.set(crdName, text);
    }
  }

  async #write(migration: InTreeMigration, status: object): Promise<InTreeMigration> {
    const { client, resource, retrier, signal } = this.#options;
    const { name, resourceVersion, uid } = migration.metadata;
    const body = { metadata: { uid, resourceVersion }, status };
    const options = { subresource: "status", fieldManager: IN_TREE_FIELD_MANAGER, signal };
    const patch = { type: MERGE_PATCH, body };
    const send = (): Promise<unknown> => client.patch<unknown>(resource, { name }, patch, options);
    const written = parseInTree(await retrier.run(send, signal));
    if (written === undefined) {
      throw new DoubtfulAnswer(`Cannot read the answer to the write of the in-tree migration "${name}"`);
    }
    return written;
  }

  #time(): string {
    return new Date(this.#options.clock.now()).toISOString().replace(/\.\d+Z$/, "Z");
  }
}

function takenText(migration: InTreeMigration): string {
  const name = companionNameOf(migration);
  return `another client created the migration.migration.k8s.io "${name}", which ksvm does its work by; delete both`;
}
