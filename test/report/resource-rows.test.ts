import tap from "tap";
import type { ClusterStatus } from "../../src/plan/cluster-status.ts";
import type { CountedEntry } from "../../src/plan/inventory.ts";
import { REPORT_STATES, type ReportState, reportRowsOf } from "../../src/report/resource-rows.ts";
import {
  builtIn,
  crd,
  crdKeyOf,
  evidenceIn,
  factsOf,
  migrationOf,
  staleCrd,
  verificationLine,
} from "./report-samples.ts";

const NAME = "widgets.example.com";
const CLEAN = crd(NAME);
const STALE = staleCrd(NAME, 12);
const BLOCKED = staleCrd(NAME, 12, { action: "blocked" });
const UNKNOWN = builtIn("secrets");
/** Of `v1` in the core group, kind Secret. */
const SECRETS_HASH = "S6u1pOWzb84=";

interface Case {
  readonly what: string;
  readonly entry: CountedEntry;
  readonly migrations?: readonly Partial<ClusterStatus["migrations"][number]>[];
  readonly runs?: ClusterStatus["runs"];
  readonly verification?: string;
  readonly state: ReportState;
}

const RUN = { resource: NAME, lease: `kube-system/ksvm-migrate.${NAME}`, state: "alive" } as const;
const failed = { state: "Failed" } as const;
const verified = (changes: object = {}) => verificationLine(NAME, changes);

const cases: readonly Case[] = [
  { what: "nothing but its plan", entry: CLEAN, state: "clean" },
  { what: "nothing but its plan", entry: STALE, state: "stale" },
  { what: "nothing but its plan", entry: BLOCKED, state: "blocked" },
  { what: "nothing but its plan", entry: UNKNOWN, state: "unknown" },
  {
    what: "a migration that calls itself succeeded",
    entry: STALE,
    migrations: [{ state: "Succeeded" }],
    state: "stale",
  },
  { what: "a failed migration", entry: STALE, migrations: [failed], state: "failed" },
  { what: "a failed migration", entry: BLOCKED, migrations: [failed], state: "failed" },
  { what: "a failed migration whose work was done since", entry: CLEAN, migrations: [failed], state: "clean" },
  { what: "a failed re-encryption", entry: STALE, migrations: [{ ...failed, reencrypts: true }], state: "stale" },
  {
    what: "a migration that failed before one that succeeded",
    entry: STALE,
    migrations: [{ state: "Succeeded", created: "2026-01-02T09:30:00Z" }, failed],
    state: "stale",
  },
  {
    what: "a migration that failed after one that succeeded",
    entry: STALE,
    migrations: [{ ...failed, created: "2026-01-02T09:30:00Z" }, {}],
    state: "failed",
  },
  { what: "a migration at work", entry: STALE, migrations: [{ state: "Running" }], state: "active" },
  { what: "a migration in the queue", entry: STALE, migrations: [{ state: "Pending" }], state: "waiting" },
  { what: "a suspended migration", entry: STALE, migrations: [{ state: "Suspended" }], state: "waiting" },
  { what: "a run at work", entry: STALE, runs: [RUN], state: "active" },
  { what: "a run that is no more", entry: STALE, runs: [{ ...RUN, state: "silent" }], state: "stale" },
  { what: "a verification", entry: CLEAN, verification: verified(), state: "verified" },
  { what: "a verification that is no prune", entry: STALE, verification: verified(), state: "stale" },
  {
    what: "a verification that found objects that were not current",
    entry: CLEAN,
    verification: verified({ outcome: "changed" }),
    state: "unproven",
  },
  {
    what: "a verification that does not show all",
    entry: CLEAN,
    verification: verified({ outcome: "not-shown" }),
    state: "unproven",
  },
  {
    what: "a verification of another storage version",
    entry: CLEAN,
    verification: verified({ storageVersion: "v1" }),
    state: "clean",
  },
  {
    what: "a verification that names no storage version",
    entry: CLEAN,
    verification: verified({ storageVersion: undefined }),
    state: "clean",
  },
  {
    what: "a verification of a CRD that was deleted since",
    entry: CLEAN,
    verification: verified({ crd: `before-${crdKeyOf(NAME)}` }),
    state: "clean",
  },
  {
    what: "a verification of another generation of the CRD",
    entry: CLEAN,
    verification: verified({ crd: crdKeyOf(NAME).replace("/3", "/2") }),
    state: "clean",
  },
  {
    what: "a verification that does not name the CRD",
    entry: CLEAN,
    verification: verified({ crd: undefined }),
    state: "clean",
  },
  {
    what: "a verification of another built-in encoding",
    entry: { ...UNKNOWN, storageVersion: "v1" },
    verification: lineOf("AAAAAAAAAAA="),
    state: "unknown",
  },
];

for (const { entry, migrations = [], runs = [], state, verification, what } of cases) {
  await tap.test(`reportRowsOf() calls a resource that is to ${entry.action} ${state} with ${what}`, async (t) => {
    const facts = factsOf([entry], {
      status: { migrations: migrations.map((changes) => migrationOf(entry.name, changes)), runs },
      evidence: verification === undefined ? [] : evidenceIn(verification),
    });
    t.equal(reportRowsOf(facts)[0]?.state, state);
  });
}

function lineOf(hash: string): string {
  return verificationLine("secrets", { storageVersion: undefined, crd: undefined, storageVersionHash: hash });
}

/** The state of Secrets that API servers store so, with a verification of `v1`. */
function stateWith(storageVersion: string): ReportState | undefined {
  const evidence = evidenceIn(lineOf(SECRETS_HASH));
  return reportRowsOf(factsOf([builtIn("secrets", { storageVersion })], { evidence }))[0]?.state;
}

await tap.test(
  "reportRowsOf() believes the verification of a built-in resource by what its hash stands for",
  async (t) => {
    t.equal(stateWith("v1"), "verified");
    t.equal(stateWith("v2"), "unknown");
  },
);

await tap.test("reportRowsOf() takes the newest verification", async (t) => {
  const evidence = evidenceIn(
    verificationLine(NAME, {}, "2026-01-02T09:40:00Z"),
    verificationLine(NAME, { outcome: "changed" }, "2026-01-02T09:30:00Z"),
  );
  t.equal(reportRowsOf(factsOf([CLEAN], { evidence }))[0]?.state, "verified");
});

await tap.test("reportRowsOf() has what calls for attention first, and keeps the order otherwise", async (t) => {
  const entries = [crd("a.b"), staleCrd("c.d", 1), crd("e.f"), staleCrd("g.h", 1, { action: "blocked" })];
  const rows = reportRowsOf(factsOf(entries));
  t.same(
    rows.map(({ entry }) => entry.name),
    ["g.h", "c.d", "a.b", "e.f"],
  );
  const ranks = rows.map(({ state }) => REPORT_STATES.indexOf(state));
  t.same(
    ranks,
    ranks.toSorted((a, b) => a - b),
  );
});
