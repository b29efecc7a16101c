import {
  type CustomResourceDefinition,
  isClean,
  servedVersionsOf,
  specKeyOf,
  storageVersionOf,
  storedVersionsOf,
} from "../../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../../src/api/names.ts";
import { parseOwner } from "../../../src/api/owner.ts";
import type { MigrationEvent } from "../../../src/migrator/events.ts";
import { apiVersionOf } from "../../../src/kube/resources.ts";
import type { MigrationResult } from "../../../src/migrator/result.ts";
import type { Counts } from "../../../src/migrator/rewrite/counts.ts";
import type { SimApiServer } from "../model/api-server.ts";
import { builtInKinds } from "../model/built-in-kinds.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { SimEtcd } from "../model/etcd.ts";
import { kindKey } from "../model/served-kinds.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { currentWriter } from "../world/api-server-node.ts";
import { groupOf, prefixOf, resourceOf } from "../world/kinds.ts";
import type { KindPlan } from "../plan.ts";
import type { SimCluster } from "../world/sim-cluster.ts";
import type { World } from "../world/world.ts";
import type { Check } from "./check.ts";
import { type CrdPast, pastOf } from "./crd-past.ts";

/** What a {@link ToldCheck} needs. */
export interface ToldCheckOptions {
  readonly report: (violation: string) => void;
  readonly etcd: SimEtcd;
  /** Who writes the revision that etcd tells of at this moment. */
  readonly writer: () => string | undefined;
  /** The program that tells. Its writes have this name. */
  readonly program: string;
  /** `plural.group`, or the plural alone in the core group. */
  readonly resource: string;
  /** Where etcd has the objects. */
  readonly prefix: string;
  /** The versions that the API servers which live now store the resource in, as `group/version`. */
  readonly storedNow: () => ReadonlySet<string>;
  /** The versions that each API server which lives now serves, of a built-in resource. @default none */
  readonly servedNow?: () => readonly string[];
  /** Whether it was told to rewrite what is clean as well. @default false */
  readonly isForced?: boolean;
  /** Whether it was told to re-encrypt. @default false */
  readonly isReencryption?: boolean;
  /** The key that all objects have to be encrypted with at the end; `undefined` where that was not settled. */
  readonly keyAtEnd: () => number | undefined;
  /** The key that a configuration writes with; `undefined` where no API server had it. @default none had any */
  readonly keyOf?: (configHash: string) => number | undefined;
  /** The keys that the API servers which live now write with. @default none */
  readonly keysNow?: () => ReadonlySet<number>;
}

/** What was said of all objects. */
interface Claim {
  /** The word that it was said with. */
  readonly what: string;
  /** The last revision that counts: what came later is not told of. @default the newest one */
  readonly upTo?: number;
  /** How many objects it is not said of, whichever they are. @default none */
  readonly butFor?: number;
}

/** An API server that changed its keys before that, in milliseconds, has no write with the old one under way. */
const KEY_SETTLED_MS = 130_000;

/** What is compared with what etcd has, and when. */
interface Followed {
  /** Writes of objects by the program. */
  writes: number;
  /** Of those that are there, the objects that the program wrote. */
  readonly written: Set<string>;
  /** Deletions of objects, by whomever. */
  deletions: number;
  /** etcd was restored, which undoes what was told. */
  isRestored: boolean;
  /** Whether it said that it cannot lift its freeze. */
  hasWarned: boolean;
  /** Whether the CRD has a freeze of it. */
  isFrozen: boolean;
  /** Whether that freeze was off until a restore of etcd put it back, and the program has not written the CRD since. */
  isPutBack: boolean;
  /** The revision of the last object that was done, when it was told. */
  doneAt: number;
  /** What the API servers stored then. */
  storedThen: ReadonlySet<string>;
  /** The keys that they wrote with then. */
  keysThen: ReadonlySet<number>;
  /** Whether the CRD was clean at some moment. */
  wasClean: boolean;
  /** What the CRD was when the program said that it is frozen, as `specKeyOf` has it. */
  frozenAs: string | undefined;
}

/**
 * What one `ksvm migrate` or `ksvm reencrypt` tells, against what etcd has at that moment: each event, and the result. What other clients do in the
 * moments between is not held against it.
 *
 * What "migrated" says today: every object is stored in the storage version. Of a CRD that is so as long as the CRD is what the
 * result names. Of another resource it was so when the last object was done, since no API server restarted or stored otherwise from
 * the first look until after that. Of a re-encryption, with whichever API servers read other configurations meanwhile: every object
 * that was written before the last one was done is encrypted with the key of the configuration that the result names. And where
 * another run was forced, and no API server changed its encryption configuration since a long time before the run:
 * every object is encrypted with the key of that configuration.
 */
export class ToldCheck {
  readonly #options: ToldCheckOptions;
  readonly #servedThen: readonly string[];
  /** Of the CRD when the program started: one that is created again is not served for a moment. */
  readonly #uidThen: string | undefined;
  readonly #seen: Followed;
  readonly #forget: (() => void)[];

  constructor(options: ToldCheckOptions) {
    const { etcd, storedNow } = options;
    this.#options = options;
    this.#servedThen = options.servedNow?.() ?? [];
    this.#uidThen = this.#newestCrd?.object.metadata.uid;
    this.#seen = {
      writes: 0,
      written: new Set(),
      deletions: 0,
      isRestored: false,
      hasWarned: false,
      isFrozen: this.#isFrozenNow,
      isPutBack: false,
      doneAt: etcd.revision,
      storedThen: storedNow(),
      keysThen: this.#keysNow,
      wasClean: this.#isCleanNow,
      frozenAs: undefined,
    };
    this.#forget = [
      etcd.onRevision((entry) => this.#written(entry)),
      etcd.onRestore(() => {
        this.#seen.isRestored = true;
        this.#seen.written.clear();
        // What was created since the backup is gone.
        this.#seen.deletions = Number.POSITIVE_INFINITY;
        this.#freezeRestored();
      }),
    ];
  }

  /** @returns one for all programs of a world. */
  static of(world: World): Check {
    const { etcd } = world.cluster;
    noteWriters(etcd, currentWriter);
    world.witnesses.push(({ force, kind, name, reencrypts = false }) => {
      const startedAt = world.schedule.now;
      const check = new ToldCheck({
        report: (violation) => world.violate(`told: ${violation}`),
        etcd,
        writer: currentWriter,
        program: name,
        resource: resourceOf(kind),
        prefix: prefixOf(kind),
        storedNow: () => new Set(world.cluster.nodes.map(({ api }) => storedApiVersionOf(api, kind))),
        servedNow: () => builtInVersionsOf(world.cluster, kind),
        isForced: force,
        isReencryption: reencrypts,
        keyOf: (configHash) => world.cluster.keyOf(configHash),
        keysNow: () => keysOf(world.cluster),
        keyAtEnd: () =>
          (force || kind.isBuiltIn === true) &&
          startedAt - world.cluster.encryptedAt > KEY_SETTLED_MS &&
          hasSeenVisitor(world.cluster, name)
            ? keyOf(world.cluster)
            : undefined,
      });
      return {
        told: (event) => check.told(event),
        ended: (result, how) => (result === undefined ? check.failed(how) : check.ended(result)),
      };
    });
    return { name: "told" };
  }

  /** The program told an event. */
  told(event: MigrationEvent): void {
    // What it begins anew after a restore it sees anew.
    if (
      this.#seen.isRestored &&
      (event.type === "frozen" || event.type === "startingAgain" || this.#hasNotBegun(event))
    ) {
      this.#seen.isRestored = false;
    }
    if (this.#seen.isRestored) return;
    switch (event.type) {
      case "frozen":
        this.#frozen(event.storageVersion);
        break;
      case "resumed":
        // The list goes on in the state that an earlier process saw: what was deleted since is gone, also before this one started.
        this.#seen.deletions = Number.POSITIVE_INFINITY;
        break;
      case "progress":
        this.#done(event.counts);
        break;
      case "pruned":
        this.#pruned(event.storedVersions, event.removed);
        break;
      case "warning":
        this.#seen.hasWarned ||= /^Cannot lift the freeze of "[^"]+": /.test(event.message);
        break;
      case "unfrozen":
      case "waiting":
      case "startingAgain":
        this.#lifted(event.type);
        break;
      default:
    }
  }

  /** It ended with a result. */
  ended(result: MigrationResult): void {
    this.#end();
    if (result.counts !== undefined && !this.#seen.isRestored) this.#countsAreTrue(result.counts, "the result");
    const failed = result.counts?.failed ?? 0;
    if (result.outcome === "incomplete" && failed === 0) this.#report("it says incomplete, and no object failed");
    if (result.outcome === "migrated" && failed > 0) this.#report(`it says migrated, and ${failed} objects failed`);
    if (this.#seen.isRestored) return;
    if (result.outcome === "nothing-to-do") {
      if (!this.#seen.wasClean) this.#report("it says nothing-to-do, and the CRD was never clean since it started");
      if (this.#options.isForced === true) this.#report("it says nothing-to-do, and it was forced");
    }
    if (result.outcome === "migrated") this.#migrated(result);
  }

  /** A run without a freeze that has not written an object rests on nothing of before the restore. */
  #hasNotBegun({ type }: MigrationEvent): boolean {
    return type === "converged" && this.#options.isReencryption === true && this.#seen.writes === 0;
  }

  /** It ended with an error of this message, or by a crash. */
  failed(how: string): void {
    this.#end();
    const unserved = /: version "([^"]+)" is no longer served: /.exec(how)?.[1];
    if (unserved === undefined || this.#seen.isRestored || !this.#wasAlwaysServed(unserved)) return;
    this.#report(`it says that ${unserved} is no longer served, and it was served all the time`);
  }

  #wasAlwaysServed(version: string): boolean {
    const { servedNow } = this.#options;
    if (this.#servedThen.includes(version) && servedNow?.().includes(version) === true) return true;
    const newest = this.#newestCrd;
    if (newest?.object.metadata.uid !== this.#uidThen) return false;
    for (let entry: EtcdEntry | undefined = newest; entry !== undefined; entry = entry.before) {
      const crd = entry.object as unknown as CustomResourceDefinition;
      if (entry.isDeleted || !servedVersionsOf(crd).includes(version)) return false;
    }
    return newest !== undefined;
  }

  get #newestCrd(): EtcdEntry | undefined {
    const { etcd, resource } = this.#options;
    return etcd.timeline.get(`${CRD_PREFIX}${resource}`);
  }

  #end(): void {
    for (const forget of this.#forget) forget();
  }

  #written({ isDeleted, key }: EtcdEntry): void {
    const { prefix, program, resource, writer } = this.#options;
    if (key === `${CRD_PREFIX}${resource}`) this.#crdWritten();
    if (!key.startsWith(prefix)) return;
    if (isDeleted) {
      this.#seen.deletions++;
      this.#seen.written.delete(key);
    } else if (writer() === program) {
      this.#seen.writes++;
      this.#seen.written.add(key);
    }
  }

  #crdWritten(): void {
    const { program, writer } = this.#options;
    this.#seen.wasClean ||= this.#isCleanNow;
    this.#seen.isFrozen = this.#isFrozenNow;
    this.#seen.isPutBack &&= this.#seen.isFrozen && writer() !== program;
  }

  /** One that was lifted in time may be back. One that was in place is still to be lifted, also where it is that of an earlier attempt by now. */
  #freezeRestored(): void {
    const wasOff = !this.#seen.isFrozen || this.#seen.isPutBack;
    this.#seen.isFrozen = this.#isFrozenNow;
    this.#seen.isPutBack = wasOff && this.#seen.isFrozen;
  }

  #frozen(storageVersion: string): void {
    const crd = this.#crd;
    this.#seen.hasWarned = false;
    this.#seen.frozenAs = crd && specKeyOf(crd.metadata);
    if (crd === undefined || this.#lastChanger !== this.#options.program) return;
    if (!this.#isFrozenByProgram(crd)) this.#report("it says frozen, and the CRD has no freeze of it");
    if (storageVersionOf(crd) !== storageVersion) {
      this.#report(`it says frozen with ${storageVersion}, and the storage version is ${storageVersionOf(crd)}`);
    }
  }

  #lifted(what: string): void {
    const { hasWarned, isPutBack } = this.#seen;
    if (hasWarned || isPutBack) return;
    if (this.#isFrozenNow) this.#report(`it says ${what}, and its freeze is in place`);
  }

  #pruned(storedVersions: readonly string[], removed: readonly string[]): void {
    const crd = this.#crd;
    if (crd === undefined) return;
    this.#isPruned(storedVersions);
    if (this.#lastChanger !== this.#options.program) return;
    const stored = storedVersionsOf(crd);
    if (stored.join() !== storedVersions.join()) {
      this.#report(`it says storedVersions is [${storedVersions.join()}], and it is [${stored.join()}]`);
    }
    const kept = removed.find((version) => stored.includes(version));
    if (kept !== undefined) this.#report(`it says that it pruned ${kept}, which storedVersions has`);
  }

  #done(counts: Readonly<Counts>): void {
    this.#countsAreTrue(counts, "its progress");
    this.#seen.doneAt = this.#options.etcd.revision;
    this.#seen.storedThen = this.#options.storedNow();
    this.#seen.keysThen = this.#keysNow;
  }

  #countsAreTrue({ changed, current, done, failed, gone, migrated, newer }: Readonly<Counts>, where: string): void {
    const { deletions, writes } = this.#seen;
    const sum = current + failed + gone + migrated + newer;
    if (done !== sum) this.#report(`${where} has ${done} objects done, and ${sum} by what became of them`);
    if (migrated > writes) this.#report(`${where} has ${migrated} objects migrated, and it wrote ${writes}`);
    if (gone > deletions) this.#report(`${where} has ${gone} objects gone, and ${deletions} were deleted`);
    if (changed > migrated) this.#report(`${where} has ${changed} objects changed of ${migrated} migrated`);
  }

  #migrated(result: MigrationResult): void {
    if (this.#options.isReencryption === true) this.#reencrypted(result);
    else this.#isStoredAnew(result);
    const key = this.#options.keyAtEnd();
    if (key !== undefined) this.#haveKey(key);
  }

  /** It prunes nothing. */
  #reencrypted({ crd: evidence, encryption }: MigrationResult): void {
    const claim = { what: "re-encrypted", upTo: this.#seen.doneAt };
    this.#areStoredAs(evidence, claim);
    this.#haveKeyOf(encryption, claim);
  }

  /** Every object that was written before the last one was done has the key of this configuration. */
  #haveKeyOf(encryption: string | undefined, { what, butFor = 0 }: Claim): void {
    const { doneAt, keysThen } = this.#seen;
    const key = encryption === undefined ? undefined : this.#options.keyOf?.(encryption);
    if (key === undefined) {
      this.#report(`it says ${what} by configuration ${encryption}, which no API server had`);
      return;
    }
    if (keysThen.size !== 1 || !keysThen.has(key)) {
      const keys = [...keysThen].join(" and ");
      this.#report(`it says ${what} with key ${key}, and API servers wrote with ${keys} when the last object was done`);
    }
    const other = this.#options.etcd
      .range(this.#options.prefix)
      .filter(({ encryptionKey, modRevision }) => modRevision <= doneAt && encryptionKey !== key)[butFor];
    if (other !== undefined) {
      this.#report(`it says ${what}, and ${other.key} is encrypted with key ${other.encryptionKey}, not ${key}`);
    }
  }

  #isStoredAnew({ crd: evidence, storageVersion, storedVersions }: MigrationResult): void {
    const crd = this.#crd;
    if (storedVersions !== undefined && storedVersions.join() !== storageVersion) {
      this.#report(`it says migrated to ${storageVersion}, and that storedVersions is [${storedVersions.join()}]`);
    }
    if (this.#options.resource.includes(".") && crd !== undefined) {
      if (evidence === undefined) this.#report("it says migrated, and not of which generation of the CRD");
      this.#areStoredAs(evidence, { what: "migrated" });
      if (specKeyOf(crd.metadata) !== evidence) return;
      if (storageVersionOf(crd) !== storageVersion) {
        this.#report(`it says migrated to ${storageVersion}, and the storage version is ${storageVersionOf(crd)}`);
      }
      const stored = storedVersionsOf(crd).join();
      if (stored !== storedVersions?.join()) {
        this.#report(`it says storedVersions is [${storedVersions?.join()}], and it is [${stored}]`);
      }
    } else if (evidence === undefined) {
      this.#areStoredAlike(this.#seen.storedThen, { what: "migrated", upTo: this.#seen.doneAt });
    }
  }

  /** API servers agreed at its beginning. So where they differ, one of them has changed since, and that shows in a look after the last object. */
  #areStoredAlike(versions: ReadonlySet<string>, claim: Claim): void {
    const { what } = claim;
    this.#areStoredIn(versions, claim);
    const { size } = versions;
    if (size > 1)
      this.#report(`it says ${what}, and API servers stored ${size} versions when the last object was done`);
  }

  /**
   * Every object is in the storage version of the CRD as `uid/generation` names it, but for those written after a later change of it.
   * @param storageVersion what that one is said to be. @default nothing is said
   */
  #areStoredAs(evidence: string | undefined, claim: Claim, storageVersion?: string): void {
    const { what } = claim;
    const past = pastOf(this.#options.etcd, this.#options.resource);
    const [uid, generation] = evidence?.split("/") ?? [];
    // The CRD was deleted, and perhaps created again.
    if (past === undefined || past.uid !== uid) return;
    const at = past.states.findIndex((state) => `${state.generation}` === generation);
    if (at === -1) this.#report(`it says ${what} as of generation ${generation}, which its CRD never had`);
    else this.#areStoredSince(past, at, claim);
    const wanted = past.states[at]?.storageVersion;
    if (at !== -1 && storageVersion !== undefined && storageVersion !== wanted)
      this.#report(
        `it says ${what} as ${storageVersion}, and the storage version of generation ${generation} is ${wanted}`,
      );
  }

  /** A CRD that was pruned had these storedVersions, and every object is in the storage version that it had then. */
  #isPruned(storedVersions: readonly string[]): void {
    const past = pastOf(this.#options.etcd, this.#options.resource);
    const [uid] = this.#seen.frozenAs?.split("/") ?? [];
    // The CRD was deleted, and perhaps created again.
    if (past === undefined || past.uid !== uid) return;
    const at = past.states.findLastIndex((state) => state.storedVersions.join() === storedVersions.join());
    if (at === -1) this.#report(`it says storedVersions is [${storedVersions.join()}], which it never was`);
    else this.#areStoredSince(past, at, { what: "pruned" });
  }

  /** Every object is in the storage version of one state of the CRD, but for those written after a later change of it. */
  #areStoredSince({ group, states }: CrdPast, at: number, claim: Claim): void {
    const { upTo = Number.POSITIVE_INFINITY } = claim;
    const wanted = states[at]?.storageVersion;
    const changed = states.slice(at).find(({ storageVersion }) => storageVersion !== wanted);
    const before = (changed?.revision ?? Number.POSITIVE_INFINITY) - 1;
    this.#areStoredIn(new Set([`${group}/${wanted}`]), { ...claim, upTo: Math.min(upTo, before) });
  }

  #areStoredIn(versions: ReadonlySet<string>, { what, upTo = Number.POSITIVE_INFINITY, butFor = 0 }: Claim): void {
    const { etcd, prefix } = this.#options;
    const other = etcd
      .range(prefix)
      .filter(({ modRevision, object }) => modRevision <= upTo && !versions.has(object.apiVersion))[butFor];
    if (other === undefined) return;
    const { key, object } = other;
    this.#report(`it says ${what}, and ${key} is stored as ${object.apiVersion}, not ${[...versions].join(" or ")}`);
  }

  #haveKey(wanted: number): void {
    const { etcd, prefix } = this.#options;
    for (const { encryptionKey, key } of etcd.range(prefix)) {
      if (encryptionKey === wanted) continue;
      this.#report(`it says migrated, and ${key} is encrypted with key ${encryptionKey}, not ${wanted}`);
      return;
    }
  }

  get #keysNow(): ReadonlySet<number> {
    return this.#options.keysNow?.() ?? new Set();
  }

  get #isCleanNow(): boolean {
    const crd = this.#crd;
    return crd !== undefined && isClean(crd);
  }

  get #isFrozenNow(): boolean {
    const crd = this.#crd;
    return crd !== undefined && this.#isFrozenByProgram(crd);
  }

  get #crd(): CustomResourceDefinition | undefined {
    const found = this.#options.etcd.get(`${CRD_PREFIX}${this.#options.resource}`);
    return found?.object as CustomResourceDefinition | undefined;
  }

  /** Who wrote the CRD last. */
  get #lastChanger(): string | undefined {
    const found = this.#options.etcd.get(`${CRD_PREFIX}${this.#options.resource}`);
    return found === undefined ? undefined : writers.get(found);
  }

  #isFrozenByProgram({ metadata }: CustomResourceDefinition): boolean {
    const { annotations = {} } = metadata;
    const owner = parseOwner(annotations[OWNER_ANNOTATION]);
    return (
      annotations[MIGRATING_ANNOTATION] !== undefined &&
      owner?.identity.startsWith(`${this.#options.program}_`) === true
    );
  }

  #report(what: string): void {
    this.#options.report(`${this.#options.program} on ${this.#options.resource}: ${what}`);
  }
}

/** What an API server that lives stores a resource in now, also one of a CRD that is deleted by then; empty where it does not serve it. */
function storedApiVersionOf({ handlers, release }: SimApiServer, kind: KindPlan): string {
  const [group, version] = [groupOf(kind), kind.versions.at(-1) ?? ""];
  const builtIn = builtInKinds(release).get(kindKey({ group, version, resource: kind.plural }));
  if (builtIn !== undefined) return builtIn.storedApiVersion;
  const crd = handlers.get(resourceOf(kind));
  return crd === undefined ? "" : apiVersionOf(group, crd.facts.storageVersion);
}

/** The versions in which each API server that lives serves a built-in resource. */
function builtInVersionsOf({ nodes }: SimCluster, kind: KindPlan): readonly string[] {
  const [group, resource] = [groupOf(kind), kind.plural];
  return kind.versions.filter((version) =>
    nodes.every(({ api: { release } }) => builtInKinds(release).has(kindKey({ group, version, resource }))),
  );
}

/** The keys that the API servers which live write with. */
function keysOf({ nodes }: SimCluster): ReadonlySet<number> {
  return new Set(nodes.map(({ api }) => api.encryption.writes));
}

/** Whether a program has looked at the identity Leases since the last API server joined that writes with another key, if one did. */
function hasSeenVisitor({ looks, visitedAt }: SimCluster, program: string): boolean {
  return visitedAt === undefined || looks.hasSince(program, visitedAt);
}

/** The key that all API servers which live write with; `undefined` where they differ. */
function keyOf(cluster: SimCluster): number | undefined {
  const [key, ...others] = keysOf(cluster);
  return others.length === 0 ? key : undefined;
}

/** Who wrote each revision, for all checks of one world. */
const writers = new WeakMap<EtcdEntry, string>();

/** Notes who wrote each revision. To be called once for each etcd, before anything else follows it. */
export function noteWriters(etcd: SimEtcd, writer: () => string | undefined): void {
  etcd.onRevision((entry) => {
    const name = writer();
    if (name !== undefined) writers.set(entry, name);
  });
}
