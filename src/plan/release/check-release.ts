import { UNKNOWN_HASH } from "../../api/migration.ts";
import type { Resource } from "../../kube/resources.ts";
import { canDecode, type KnownVersion, versionOfHash } from "../../resources/known-versions.ts";

/**
 * What becomes of the objects of a built-in resource under the API server of another release.
 *
 * - `readable`: it can read all of them
 * - `needs-migration`: it cannot read a version that some may be stored in, and a migration rewrites them in one that it can
 * - `data-loss`: it cannot read the version that the API servers write now, so that a migration does not help
 * - `unknown`: it cannot be told
 */
export type ReleaseVerdict = "readable" | "needs-migration" | "data-loss" | "unknown";

/** One built-in resource. Field names are those of `ksvm check --control-plane -o json`. */
export interface ReleaseEntry {
  readonly name: string;
  readonly verdict: ReleaseVerdict;
  /** Why, as one sentence. */
  readonly reason: string;
  /** The version that the API servers write now; missing where its hash stands for none that is known. */
  readonly writes?: string;
  /** The versions that objects may be stored in, and hashes that stand for none that is known. */
  readonly stored: readonly string[];
  /** Missing where they were not counted, which only matters where some may not be readable. */
  readonly objects?: number;
  /** What to do, in this order. */
  readonly steps: readonly string[];
}

/** What is known of a built-in resource. */
export interface ResourceFacts {
  readonly name: string;
  readonly kind: string;
  /** Where its objects are listed. */
  readonly request: Resource;
  /** The storageVersionHash that discovery shows. */
  readonly hash: string;
  /** The hashes of its StorageState; empty where it has none. */
  readonly persisted: readonly string[];
  /** Why `persisted` may leave something out. */
  readonly doubt?: string | undefined;
  /** Missing where they are not counted. */
  readonly objects?: number | undefined;
}

/** The release that is asked about. */
export interface Target {
  /** The minor release, one of the table. */
  readonly release: string;
  /** Whether it is older than what the API server runs. */
  readonly isOlder: boolean;
}

/** Decides about one built-in resource. */
export function checkResource(target: Target, facts: ResourceFacts): ReleaseEntry {
  const { hash, name, objects, persisted } = facts;
  const writes = versionOf(hash, facts);
  const hashes = [...new Set([...persisted, hash])];
  return {
    name,
    ...(writes === undefined ? {} : { writes: writes.apiVersion }),
    stored: hashes.map((one) => storedText(one, facts)),
    ...(objects === undefined ? {} : { objects }),
    ...judge(target, facts),
  };
}

/** Those that know whether there are objects at all may find that nothing is lost. */
export function asksForCount({ verdict }: ReleaseEntry): boolean {
  return verdict === "needs-migration" || verdict === "data-loss";
}

type Judgement = Pick<ReleaseEntry, "verdict" | "reason" | "steps">;

function judge(target: Target, facts: ResourceFacts): Judgement {
  const { release } = target;
  const { doubt, hash, persisted } = facts;
  const writes = versionOf(hash, facts);
  if (writes !== undefined && !canDecode(release, writes)) {
    return withoutObjects(facts, writtenUnreadable(target, facts, writes.apiVersion));
  }
  const unreadable = persisted.flatMap((one) => {
    const version = versionOf(one, facts);
    return version === undefined || canDecode(release, version) ? [] : [version.apiVersion];
  });
  if (writes !== undefined && unreadable.length > 0) {
    return withoutObjects(facts, {
      verdict: "needs-migration",
      reason: `objects may be stored in ${unreadable.join(", ")}, which Kubernetes ${release} cannot read`,
      steps: [`rewrite them in ${writes.apiVersion}: ksvm migrate ${facts.name}`],
    });
  }
  return (
    unknownStored(facts) ??
    (doubt === undefined
      ? {
          verdict: "readable",
          reason: `Kubernetes ${release} reads every version that objects may be stored in`,
          steps: [],
        }
      : { verdict: "unknown", reason: doubt, steps: [] })
  );
}

/** The version that a hash stands for. A user can write any hash into a StorageState, also that of another kind. */
function versionOf(hash: string, { kind }: ResourceFacts): KnownVersion | undefined {
  const version = versionOfHash(hash);
  return version?.kind === kind ? version : undefined;
}

function storedText(hash: string, facts: ResourceFacts): string {
  return versionOf(hash, facts)?.apiVersion ?? (hash === UNKNOWN_HASH ? "unknown" : `hash ${hash}`);
}

function unknownStored(facts: ResourceFacts): Judgement | undefined {
  const { hash, name, persisted } = facts;
  const isForeign = (one: string): boolean => one !== UNKNOWN_HASH && versionOf(one, facts) === undefined;
  const foreign = [...new Set([...persisted, hash])].filter(isForeign);
  if (foreign.length > 0) {
    const reason = `no release of the table has a ${facts.kind} with the storageVersionHash ${foreign.join(", ")}`;
    return { verdict: "unknown", reason, steps: [] };
  }
  return persisted.includes(UNKNOWN_HASH)
    ? {
        verdict: "unknown",
        reason:
          "its StorageState does not know all versions that objects may be stored in, until a migration has succeeded",
        steps: [`rewrite them: ksvm migrate ${name}`],
      }
    : undefined;
}

function writtenUnreadable(target: Target, { name }: ResourceFacts, writes: string): Judgement {
  const { isOlder, release } = target;
  const reason = `the API servers write ${writes}, which Kubernetes ${release} cannot read: a migration alone does not help`;
  return {
    verdict: "data-loss",
    reason,
    steps: isOlder
      ? [
          `start every API server with --emulated-version=${release} (or the nearest that it takes), so that it writes an older version`,
          `rewrite the objects in that one: ksvm migrate ${name}`,
          `run ksvm check --control-plane ${release} again`,
        ]
      : [
          `have the API servers write a version that Kubernetes ${release} reads, where they serve one, and run ksvm migrate ${name}`,
          `if there is none, the resource ends with this release: save what you need of it (kubectl get ${name} -A -o yaml), and delete it`,
        ],
  };
}

/** Where nothing is stored nothing is lost. A doubt is that: other API servers may store objects in other versions. */
function withoutObjects({ doubt, objects }: ResourceFacts, judgement: Judgement): Judgement {
  return objects === 0 && doubt === undefined
    ? { verdict: "readable", reason: `it has no objects; if there were any: ${judgement.reason}`, steps: [] }
    : judgement;
}
