import { hasCondition, resourceNameOf, type StorageVersionMigration } from "../../../src/api/migration.ts";
import { type ReencryptionWish, reencryptionWishOf } from "../../../src/api/reencryption.ts";
import type { SimEtcd } from "../model/etcd.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { currentWriter } from "../world/api-server-node.ts";
import { GROUP } from "../world/kinds.ts";
import { isByKsvm, type World } from "../world/world.ts";
import type { Check } from "./check.ts";
import { type CrdPast, pastOf, storedUnder } from "./crd-past.ts";

/** So long after a restore of etcd, in milliseconds, what came of a run may be written that ended before it. */
const RESTORED_MS = 120_000;
const MIGRATIONS = "/registry/migration.k8s.io/storageversionmigrations/";

/**
 * A StorageVersionMigration that ksvm calls Succeeded says what etcd shows at that revision: every object of its CRD is in the
 * storage version of the generation that the status names, but for those written after a later change of the storage version; and
 * storedVersions was that version alone at some moment since the migration was created. One that re-encrypts prunes nothing: its
 * objects are encrypted with the key of the configuration that the status names.
 */
export class MigratedCheck implements Check {
  readonly name = "migrated";
  readonly #world: World;
  /** The revision of etcd when each replica sent its last write of an object, by its name and that of the resource. */
  readonly #lastWrites = new Map<string, number>();
  #restoredAt = Number.NEGATIVE_INFINITY;

  constructor(world: World) {
    const { etcd } = world.cluster;
    this.#world = world;
    etcd.onRestore(() => {
      this.#restoredAt = world.schedule.now;
      this.#lastWrites.clear();
    });
    world.cluster.onRequest(({ method, path, query, user }) => {
      if (method !== "PATCH" || !user.startsWith("ksvm") || query.has("dryRun")) return;
      if (path.startsWith(`/apis/${GROUP}/`)) this.#lastWrites.set(`${user} ${path.split("/").at(-2)}`, etcd.revision);
    });
    etcd.onRevision((entry) => {
      if (entry.key.startsWith(MIGRATIONS) && !entry.isDeleted && isByKsvm()) this.#written(etcd, entry);
    });
  }

  #written(etcd: SimEtcd, entry: EtcdEntry): void {
    const migration = entry.object as unknown as StorageVersionMigration;
    const before = entry.before?.object as unknown as StorageVersionMigration | undefined;
    if (!hasCondition(migration, "Succeeded") || (before !== undefined && hasCondition(before, "Succeeded"))) return;
    const past = pastOf(etcd, resourceNameOf(migration.spec.resource));
    if (past === undefined) return;
    const reason = migration.status?.conditions?.find(({ type }) => type === "Succeeded")?.reason;
    const wish = reencryptionWishOf(migration.metadata.annotations);
    // A restore may undo the prune alone, which the migration and its objects do not show.
    const isRestored = this.#world.schedule.now - this.#restoredAt < RESTORED_MS;
    const since = isRestored || wish !== undefined ? undefined : entry.createRevision;
    const problem =
      reason === "NothingToDo" && wish === undefined
        ? neverClean(past, entry.createRevision)
        : (notMigrated(etcd, past, { since, proven: migration.status?.crd }) ??
          (isRestored || wish === undefined ? undefined : this.#notReencrypted(migration, past, wish)));
    if (problem !== undefined) {
      this.#world.violate(
        `migrated: ${entry.key} is Succeeded (${reason}) at revision ${entry.modRevision}, and ${problem}`,
      );
    }
  }

  /** Every object that was there when the last one was written has the key of the configuration that its status names. */
  #notReencrypted(
    { metadata, spec, status }: StorageVersionMigration,
    { prefix }: CrdPast,
    { expectedConfig }: ReencryptionWish,
  ): string | undefined {
    const { message = "", reason } = status?.conditions?.find(({ type }) => type === "Succeeded") ?? {};
    const [config = ""] = /sha256:[0-9a-f]{64}$/.exec(message) ?? [];
    const key = this.#world.cluster.keyOf(config);
    if (reason !== "Reencrypted" || key === undefined) return `${metadata.name} was to re-encrypt, and names no key`;
    if (expectedConfig !== undefined && config !== expectedConfig)
      return `it means ${expectedConfig}, and names ${config}`;
    const upTo = this.#lastWrites.get(`${currentWriter()} ${spec.resource.resource}`) ?? 0;
    const other = this.#world.cluster.etcd
      .range(prefix)
      .find(({ encryptionKey, modRevision }) => modRevision <= upTo && encryptionKey !== key);
    return (
      other &&
      `${other.key} is encrypted with key ${other.encryptionKey} since revision ${other.modRevision}, not ${key}`
    );
  }
}

function notMigrated(
  etcd: SimEtcd,
  past: CrdPast,
  { since, proven = "" }: { readonly since: number | undefined; readonly proven: string | undefined },
): string | undefined {
  const [uid, generation] = proven.split("/");
  if (proven === "") return "it names no CRD that was proven";
  const at = past.states.findIndex((state) => state.generation === Number(generation));
  // The CRD was deleted and created again since, or etcd was restored from a time before.
  if (uid !== past.uid || at === -1) return undefined;
  const { storageVersion } = past.states[at] as CrdPast["states"][number];
  const changed = past.states.slice(at).find((state) => state.storageVersion !== storageVersion);
  const others = storedUnder(etcd, past.prefix, changed?.revision).filter(({ version }) => version !== storageVersion);
  const [first] = others;
  if (first !== undefined) {
    return `${others.length} objects are not stored as ${storageVersion}: ${first.key} is ${first.version} since revision ${first.revision}`;
  }
  return since === undefined ? undefined : neverClean(past, since, storageVersion);
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
