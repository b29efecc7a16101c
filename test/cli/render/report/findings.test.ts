import tap from "tap";
import { type Finding, findingsOf } from "../../../../src/cli/render/report/findings.ts";
import { reportOf } from "../../../../src/report/report.ts";
import {
  builtIn,
  crd,
  crdKeyOf,
  eventLine,
  evidenceIn,
  exampleFacts,
  factsOf,
  migrationOf,
  resultLine,
  staleCrd,
  verificationLine,
} from "../../../report/report-samples.ts";

const NAME = "widgets.example.com";
const FAILURES = [
  { namespace: "a", name: "b", reason: "no" },
  { name: "c", reason: "never" },
] as const;

function findings(...facts: Parameters<typeof factsOf>): readonly Finding[] {
  return findingsOf(reportOf(factsOf(...facts)));
}

await tap.test("findingsOf() finds nothing where nothing calls for attention", async (t) => {
  const done = evidenceIn(resultLine(NAME), verificationLine(NAME));
  t.same(findings([crd(NAME), staleCrd("a.b", 3), builtIn("secrets")], { evidence: done }), []);
});

await tap.test("findingsOf() names the objects of a failed migration, and counts the others", async (t) => {
  const failed = { state: "Failed", message: "ObjectsFailed: x", failures: FAILURES } as const;
  const counts = { migrated: 3, skipped: 0, failed: 9 };
  const status = { migrations: [migrationOf(NAME, { ...failed, counts })] };
  t.same(findings([staleCrd(NAME, 12)], { status }), [
    {
      about: NAME,
      what: `migration ${NAME}-x1 failed: ObjectsFailed: x`,
      reasons: ["a/b: no", "c: never"],
      more: 7,
    },
  ]);
  t.same(findings([crd(NAME)], { status }), [], "not where the work was done since");
});

await tap.test("findingsOf() tells of a failed re-encryption, unless a newer one did better", async (t) => {
  const failed = migrationOf(NAME, { state: "Failed", reencrypts: true });
  t.match(findings([crd(NAME)], { status: { migrations: [failed] } }), [{ what: /^re-encryption .* failed$/ }]);
  const newer = migrationOf(NAME, { reencrypts: true, created: "2026-01-02T09:59:00Z" });
  t.same(findings([crd(NAME)], { status: { migrations: [newer, failed] } }), []);
});

await tap.test(
  "findingsOf() says why a migration cannot start, would wait, objects are not counted, or storedVersions is not believed",
  async (t) => {
    const { objects: _objects, ...uncounted } = crd(NAME);
    const cases = [
      [staleCrd(NAME, 1, { action: "blocked", note: "no version is served" }), /^a migration cannot start: no version/],
      [staleCrd(NAME, 1, { conversionProblem: "no route" }), /^a migration would wait: .*no route$/],
      [{ ...uncounted, note: "objects cannot be listed: forbidden" }, /^objects cannot be listed: forbidden$/],
      [staleCrd(NAME, 1, { pruneDoubt: "objects may be stored in v1" }), /^objects may be stored in v1$/],
    ] as const;
    for (const [entry, what] of cases) t.match(findings([entry]), [{ about: NAME, what }]);
  },
);

await tap.test("findingsOf() tells of what a verification does not show", async (t) => {
  const server = "https://10.0.0.1:6443";
  const changes = {
    outcome: "changed",
    counts: { current: 9, changed: 1, gone: 0, notShown: 3 },
    changed: [{ name: "x", server }],
    notShown: FAILURES,
  };
  const [found, ...others] = findings([crd(NAME)], { evidence: evidenceIn(verificationLine(NAME, changes)) });
  t.match(found, {
    what: /in run\.json: 9 objects current on 2 of 2 API servers/,
    reasons: [/^x was not current/, "a/b: no", "c: never"],
    more: 1,
  });
  t.same(others, []);
});

const outdated = [
  [{ storageVersion: "v1" }, 'it is of storage version "v1", and now that is "v2"'],
  [{ crd: undefined }, "it does not tell uid and generation of the CRD, as none of an older ksvm does; verify again"],
  [{ crd: `before-${crdKeyOf(NAME)}` }, "it is of a CRD of this name that was deleted since"],
  [{ crd: `uid-${NAME}/2` }, `it is of the CRD with uid/generation uid-${NAME}/2, and now that is uid-${NAME}/3`],
] as const;

for (const [changes, why] of outdated) {
  await tap.test(`findingsOf() says of a verification that shows nothing of now why: ${why}`, async (t) => {
    const evidence = evidenceIn(verificationLine(NAME, changes));
    const what = `the verification in run.json shows nothing of now: ${why}`;
    t.same(findings([crd(NAME)], { evidence }), [{ about: NAME, what }]);
  });
}

await tap.test("findingsOf() takes the last word of the files on each resource", async (t) => {
  const incomplete = resultLine(NAME, { outcome: "incomplete", failures: FAILURES }, "2026-01-02T09:10:00Z");
  t.match(findings([], { evidence: evidenceIn(incomplete) }), [
    { about: NAME, what: /^the run in run\.json: incomplete/, reasons: ["a/b: no", "c: never"] },
  ]);
  t.same(findings([], { evidence: evidenceIn(incomplete, resultLine(NAME)) }), []);
  const error = { time: "2026-01-02T09:50:00Z", resource: NAME, type: "error", code: "Forbidden", message: "not you" };
  t.match(findings([], { evidence: evidenceIn(resultLine(NAME), JSON.stringify(error)) }), [
    { what: "the run in run.json failed: not you [Forbidden]" },
  ]);
  t.match(findings([], { evidence: evidenceIn(eventLine(NAME)) }), [{ what: /has no end/ }]);
});

await tap.test("findingsOf() tells of what is going on that should not, and of what is not known", async (t) => {
  const found = findings([], {
    unavailable: [{ groupVersion: "metrics.k8s.io/v1beta1", reason: "down" }],
    status: {
      suspended: { since: "2026-01-01T00:00:00Z", by: "me" },
      leftOut: [{ name: "m", reason: "no spec" }],
      freezes: [
        { crd: "mine.example.com", owner: "pod-1" },
        { crd: "theirs.example.com" },
        { crd: "stuck.example.com", condition: "StorageMigrating", owner: "kube-controller-manager", isStuck: true },
      ],
      runs: [{ resource: NAME, lease: "kube-system/x", state: "silent" }],
      storage: [{ resource: "secrets", servers: [{ server: "a", version: "v1" }] }],
      unknown: ["runs: this user may not list Leases"],
    },
  });
  t.same(
    found.map(({ about }) => about),
    [
      "migrations",
      "migration m",
      "theirs.example.com",
      "stuck.example.com",
      NAME,
      "secrets",
      "metrics.k8s.io/v1beta1",
      "not known",
    ],
  );
});

await tap.test("findingsOf() has what failed before what cannot start", async (t) => {
  const found = findingsOf(reportOf(exampleFacts()));
  t.match(found, [{ what: /^migration .* failed/ }, { what: /^a migration cannot start/ }]);
  t.equal(found.length, 2);
});
