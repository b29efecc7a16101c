import { hasCondition, resourceNameOf, type StorageVersionMigration } from "../../../src/api/migration.ts";
import { reencryptionWishOf } from "../../../src/api/reencryption.ts";
import { FORCE_ANNOTATION } from "../../../src/api/names.ts";
import type { SimEtcd } from "../model/etcd.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { currentWriter } from "../world/api-server-node.ts";
import type { KindPlan } from "../plan.ts";
import { groupOf, prefixOf } from "../world/kinds.ts";
import type { World } from "../world/world.ts";
import { areUnmanaged } from "../actions/choices.ts";
import type { Check } from "./check.ts";
import { type CrdPast, pastOf, storedUnder } from "./crd-past.ts";
import { storedVersionsOf } from "./served-storage.ts";

/** The last write of an object. */
interface LastWrite {
  /** That of etcd when it was sent. */
  readonly revision: number;
  /** What the API servers stored then, of a built-in resource: `group/version`. */
  readonly stored: ReadonlySet<string>;
}

const NO_VERSIONS: ReadonlySet<string> = new Set();

const MIGRATIONS = "/registry/migration.k8s.io/storageversionmigrations/";

/**
 * A StorageVersionMigration that ksvm calls Succeeded says what etcd shows at that revision: every object of its CRD is in the
 * storage version of the generation that the status names, but for those written after a later change of the storage version; and
 * storedVersions was that version alone at some moment since the migration was created, unless its controller prunes nothing. One that re-encrypts prunes nothing: its
 * objects are encrypted with the key of the configuration that the status names. One of a built-in resource says that its objects are in the
 * version that the API servers stored when the last one was written.
 */
export class MigratedCheck implements Check {
  readonly name = "migrated";
  readonly #world: World;
  readonly #writer: () => string | undefined;
  /** When each replica sent its last write of an object, by its name and the plural of the resource. */
  readonly #lastWrites = new Map<string, LastWrite>();

  /** @param writer as `FreezesCheck` has it */
  constructor(world: World, writer: () => string | undefined = currentWriter) {
    const { etcd } = world.cluster;
    this.#world = world;
    this.#writer = writer;
    // What it gives numbers to is written again.
    etcd.onRestore(() => this.#lastWrites.clear());
    world.cluster.onRequest(({ method, path, query, user }) => {
      if (method !== "PATCH" || !user.startsWith("ksvm") || query.has("dryRun")) return;
      const plural = path.split("/").at(-2);
      const kind = world.plan.kinds.find((one) => one.plural === plural);
      if (kind === undefined) return;
      const stored = kind.isBuiltIn === true ? storedVersionsOf(world.cluster, kind) : NO_VERSIONS;
      this.#lastWrites.set(`${user} ${plural}`, { revision: etcd.revision, stored });
    });
    etcd.onRevision((entry) => {
      if (entry.key.startsWith(MIGRATIONS) && !entry.isDeleted && writer()?.startsWith("ksvm") === true)
        this.#written(etcd, entry);
    });
  }

  #written(etcd: SimEtcd, entry: EtcdEntry): void {
    const migration = entry.object as unknown as StorageVersionMigration;
    const before = entry.before?.object as unknown as StorageVersionMigration | undefined;
    if (!hasCondition(migration, "Succeeded") || (before !== undefined && hasCondition(before, "Succeeded"))) return;
    const past = pastOf(etcd, resourceNameOf(migration.spec.resource));
    if (migration.metadata.annotations?.[FORCE_ANNOTATION] === "true" && reasonOf(migration) === "NothingToDo") {
      this.#world.violate(
        `migrated: ${entry.key} found nothing to do at revision ${entry.modRevision}, and it is forced`,
      );
      return;
    }
    const problem =
      past === undefined ? this.#builtInProblem(migration, entry) : this.#crdProblem(migration, past, entry);
    if (problem !== undefined) {
      this.#world.violate(
        `migrated: ${entry.key} is Succeeded (${reasonOf(migration)}) at revision ${entry.modRevision}, and ${problem}`,
      );
    }
  }

  #crdProblem(migration: StorageVersionMigration, past: CrdPast, { createRevision }: EtcdEntry): string | undefined {
    const { etcd } = this.#world.cluster;
    const wish = reencryptionWishOf(migration.metadata.annotations);
    if (reasonOf(migration) === "NothingToDo" && wish === undefined) return neverClean(past, createRevision);
    const prunes = wish === undefined && !areUnmanaged(this.#world.plan);
    return (
      notMigrated(etcd, past, { since: createRevision, proven: migration.status?.crd, prunes }) ??
      (wish === undefined ? undefined : this.#notReencrypted(migration, { createRevision, prefix: past.prefix }))
    );
  }

  #builtInProblem(migration: StorageVersionMigration, { createRevision }: EtcdEntry): string | undefined {
    const { group, resource } = migration.spec.resource;
    const kind = this.#world.plan.kinds.find((one) => {
      return one.isBuiltIn === true && one.plural === resource && groupOf(one) === group;
    });
    if (kind === undefined) return undefined;
    const wish = reencryptionWishOf(migration.metadata.annotations);
    if (wish !== undefined) return this.#notReencrypted(migration, { createRevision, prefix: prefixOf(kind) });
    return reasonOf(migration) === "Migrated" ? this.#notStoredAnew(kind, createRevision) : undefined;
  }

  /** Every object that was there when the last one was written is in the version that all API servers stored then. */
  #notStoredAnew(kind: KindPlan, createRevision: number): string | undefined {
    const { cluster } = this.#world;
    const last = this.#lastWrites.get(`${this.#writer()} ${kind.plural}`);
    // Where it wrote none, what was there before the run is in the version of now.
    const { revision, stored } =
      last !== undefined && last.revision > createRevision
        ? last
        : { revision: createRevision, stored: storedVersionsOf(cluster, kind) };
    if (stored.size > 1) return `API servers stored ${[...stored].join(" and ")} when the last object was written`;
    const other = cluster.etcd
      .range(prefixOf(kind))
      .find(({ modRevision: at, object }) => at <= revision && !stored.has(object.apiVersion));
    return other && `${other.key} is stored as ${other.object.apiVersion}`;
  }

  /** Every object that was there when the last one was written has the key of the configuration that its status names. */
  #notReencrypted(
    { metadata, spec, status }: StorageVersionMigration,
    { createRevision, prefix }: { readonly createRevision: number; readonly prefix: string },
  ): string | undefined {
    const { message = "", reason } = status?.conditions?.find(({ type }) => type === "Succeeded") ?? {};
    const [config = ""] = /sha256:[0-9a-f]{64}$/.exec(message) ?? [];
    const key = this.#world.cluster.keyOf(config);
    if (reason !== "Reencrypted" || key === undefined) return `${metadata.name} was to re-encrypt, and names no key`;
    const last = this.#lastWrites.get(`${this.#writer()} ${spec.resource.resource}`)?.revision ?? 0;
    // The run began after the migration was created.
    const upTo = Math.max(last, createRevision);
    // The configurations encrypt the resources of the plan, and what ksvm keeps is plain text.
    const isEncrypted = this.#world.plan.kinds.some(({ plural }) => plural === spec.resource.resource);
    const wanted = isEncrypted ? key : 0;
    const other = this.#world.cluster.etcd
      .range(prefix)
      .find(({ encryptionKey, modRevision }) => modRevision <= upTo && encryptionKey !== wanted);
    return (
      other &&
      `${other.key} is encrypted with key ${other.encryptionKey} since revision ${other.modRevision}, not ${wanted}`
    );
  }
}

function reasonOf({ status }: StorageVersionMigration): string | undefined {
  return status?.conditions?.find(({ type }) => type === "Succeeded")?.reason;
}

/** @param prunes one that re-encrypts does not, nor one of a controller with `--manage-stored-versions=false` */
function notMigrated(
  etcd: SimEtcd,
  past: CrdPast,
  {
    since,
    proven = "",
    prunes,
  }: { readonly since: number; readonly proven: string | undefined; readonly prunes: boolean },
): string | undefined {
  const [uid, generation] = proven.split("/");
  if (proven === "") return "it names no CRD that was proven";
  // The CRD was deleted and created again since.
  if (uid !== past.uid) return undefined;
  const at = past.states.findIndex((state) => state.generation === Number(generation));
  if (at === -1) return `its CRD never had generation ${generation}`;
  const next = past.states.find((state) => state.generation > Number(generation));
  if (next !== undefined && next.revision <= since) return `generation ${generation} was over when it was created`;
  const { storageVersion } = past.states[at] as CrdPast["states"][number];
  const changed = past.states.slice(at).find((state) => state.storageVersion !== storageVersion);
  const others = storedUnder(etcd, past.prefix, changed?.revision).filter(({ version }) => version !== storageVersion);
  const [first] = others;
  if (first !== undefined) {
    return `${others.length} objects are not stored as ${storageVersion}: ${first.key} is ${first.version} since revision ${first.revision}`;
  }
  return prunes ? neverClean(past, since, storageVersion) : undefined;
}

/** What the status of the CRD shows: a state is in force until the next one. */
function neverClean({ states }: CrdPast, since: number, wanted?: string): string | undefined {
  const seen = states.filter((_, at) => (states[at + 1]?.revision ?? Number.POSITIVE_INFINITY) > since);
  const isClean = seen.some(({ storageVersion, storedVersions }) => {
    return storedVersions.join(" ") === (wanted ?? storageVersion);
  });
  return isClean
    ? undefined
    : `storedVersions was not ${wanted ?? "the storage version"} alone since revision ${since}`;
}
