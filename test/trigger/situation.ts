import type { CrdFacts } from "../../src/trigger/crd-facts.ts";
import type { MigrationFacts } from "../../src/trigger/migration-facts.ts";
import type { Situation } from "../../src/trigger/next-status.ts";
import type { Observed } from "../../src/trigger/observe.ts";
import type { StateFacts } from "../../src/trigger/state-facts.ts";

export const NOW = Date.parse("2026-01-01T12:00:00Z");
export const MINUTE = 60_000;

/** A built-in resource that all API servers encode as `hash`. */
export function builtIn(hash: string, more: Partial<Observed> = {}): Observed {
  return {
    name: "deployments.apps",
    group: "apps",
    version: "v1",
    resource: "deployments",
    hashes: [hash],
    agreed: hash,
    ...more,
  };
}

/** A CRD whose storage version is `stored`'s last, with hashes named after versions. */
export function crd(stored: readonly string[], more: Partial<CrdFacts> = {}): CrdFacts {
  return {
    name: "widgets.example.com",
    uid: "crd-uid",
    generation: 3,
    requestVersion: "v1",
    hash: `#${stored.at(-1) ?? ""}`,
    storedVersions: stored,
    storedHashes: stored.map((version) => `#${version}`),
    isClean: stored.length === 1,
    isOptedOut: false,
    ...more,
  };
}

/** The custom resource of a CRD. */
export function custom(facts: CrdFacts, more: Partial<Observed> = {}): Observed {
  const { hash, name } = facts;
  return {
    name,
    group: "example.com",
    version: "v1",
    resource: "widgets",
    hashes: [hash],
    agreed: hash,
    crd: facts,
    ...more,
  };
}

/** A resource that API servers encode differently. */
export function disagreeing(hashes: readonly string[]): Observed {
  const { agreed: _, ...rest } = builtIn("");
  return { ...rest, hashes, disagreement: "they differ" };
}

export function state(persisted: readonly string[], current: string, more: Partial<StateFacts> = {}): StateFacts {
  return {
    uid: "s",
    resourceVersion: "5",
    persisted,
    current,
    heartbeat: NOW - MINUTE,
    crd: undefined,
    isOurs: true,
    ...more,
  };
}

/** A migration of the trigger. One that succeeded did so for the CRD as {@link crd} makes it by default. */
export function migration(
  state: MigrationFacts["state"],
  hash: string | undefined,
  more: Partial<MigrationFacts> = {},
): MigrationFacts {
  return {
    name: `${state}-${hash ?? ""}`,
    uid: `uid-${state}-${hash ?? ""}`,
    resourceVersion: "7",
    resourceName: "deployments.apps",
    isOurs: true,
    isSuspended: false,
    isReencryption: false,
    state,
    createdAt: NOW - 2 * MINUTE,
    endedAt: NOW,
    attempt: 1,
    ...(state === "Succeeded" ? { reason: "Migrated", provenCrd: "crd-uid/3" } : {}),
    ...(hash === undefined ? {} : { hash }),
    ...more,
  };
}

export function situation(
  observed: Observed,
  known: StateFacts | undefined,
  migrations: readonly MigrationFacts[] = [],
): Situation {
  return { observed, observedAt: NOW, state: known, migrations, now: NOW };
}
