import type { CustomResourceDefinition } from "../api/crd.ts";
import type { Freezer } from "../api/owner.ts";
import type { LiveLease } from "../old/apiservers/control-plane-objects.ts";
import type { InTreeMigration } from "../in-tree/in-tree-migrations.ts";
import type { ListedObjects } from "../plan/check-types.ts";

/**
 * What is wrong.
 *
 * - `unreadable-objects`: objects are stored in a version that the CRD no longer has
 * - `unproven-prune`: Kubernetes' own migrator may have pruned storedVersions, and its migration has not succeeded
 * - `unfinished-repair`: `ksvm doctor --repair` brought a version back and did not come to its end
 * - `unlisted-objects`: the objects cannot be listed, for another reason
 * - `stale-stored-versions`: storedVersions lists more than the storage version
 * - `stuck-freeze`: the run that froze the CRD is dead
 * - `foreign-freeze`: another client froze the CRD
 * - `stuck-storage-migrating`: the condition StorageMigrating is True, and no migration explains it
 * - `silent-api-server`: an API server stopped to renew its identity Lease, which has not expired
 * - `silent-webhook`: the configuration of ksvm's webhook is there, and nothing answers
 * - `not-looked-at`: this user may not look
 */
export type FindingKind =
  | "unreadable-objects"
  | "unproven-prune"
  | "unfinished-repair"
  | "unlisted-objects"
  | "stale-stored-versions"
  | "stuck-freeze"
  | "foreign-freeze"
  | "stuck-storage-migrating"
  | "silent-api-server"
  | "silent-webhook"
  | "not-looked-at";

/** How bad it is: `data` is unreadable or would be lost, `action` needs one, `unknown` is not known. */
export type Severity = "data" | "action" | "unknown";

/** One thing that is wrong. Field names are those of `ksvm doctor -o json`. */
export interface Finding {
  readonly finding: FindingKind;
  readonly severity: Severity;
  /** The CRD, or another object as `resource/name`. */
  readonly object: string;
  /** The versions that it is about. */
  readonly versions?: readonly string[];
  /** How many objects it is about; `unknown` where the API server does not show them. */
  readonly objects?: number | "unknown";
  /** As one sentence. */
  readonly meaning: string;
  /** The command that helps, or what else to do. */
  readonly help: string;
}

/** A freeze, and whether the run that holds it lives: `undefined` where that cannot be told. */
export type FoundFreeze =
  | (Extract<Freezer, { kind: "other" }> & { readonly isAlive?: never })
  | (Extract<Freezer, { kind: "run" }> & { readonly isAlive: boolean | undefined });

/** What is known of one CRD. */
export interface CrdFacts {
  readonly crd: CustomResourceDefinition;
  /** Missing where the CRD serves no version. */
  readonly objects?: ListedObjects | undefined;
  /** Missing where the CRD is not frozen by the annotation. */
  readonly freeze?: FoundFreeze | undefined;
}

/** Whether something answers for ksvm's webhook. */
export type WebhookFacts =
  | { readonly state: "absent" | "answers" }
  | { readonly state: "silent" | "unknown"; readonly reason: string };

/** What a diagnosis rests on. */
export interface DoctorFacts {
  readonly crds: readonly CrdFacts[];
  /** Missing where this user may not list them. */
  readonly inTree?: readonly InTreeMigration[] | undefined;
  /** Missing where only some CRDs are asked about. */
  readonly cluster?: ClusterFacts | undefined;
}

/** What does not belong to one CRD. */
export interface ClusterFacts {
  /** Of API servers that were not renewed while it was looked. Missing where this user may not list them. */
  readonly silentLeases?: readonly LiveLease[] | undefined;
  readonly webhook: WebhookFacts;
}
