import tap from "tap";
import { checkCrd } from "../../src/plan/check.ts";
import type { CheckEntry, CheckFacts, DryRun } from "../../src/plan/check-types.ts";
import { applierOf, asWritten } from "../../src/plan/left-fields.ts";
import { crdWith } from "../api/crd-with.ts";
import { APPLIED, fileWith, refusedFor } from "./check-situation.ts";

const ALL = { "f:spec": { "f:group": {}, "f:versions": {} } };
const APPLY = { manager: "flux", operation: "Apply", time: "2026-01-02T00:00:00Z", fieldsV1: ALL };
const LEFT = "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook";
const STORED = 'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions';
const OTHER = 'spec.scope: Invalid value: "Cluster": field is immutable';

function leftFor(replaced: DryRun, ...causes: readonly string[]): DryRun {
  return { outcome: "refused", said: causes.join(", "), causes, replaced };
}

function of(...managedFields: readonly object[]): string | undefined {
  return applierOf(crdWith({ metadata: { managedFields } }));
}

await tap.test("applierOf() is the client that last applied the whole CRD server-side", (t) => {
  t.equal(of(), undefined);
  t.equal(of({ ...APPLY, operation: "Update" }), undefined);
  t.equal(of({ ...APPLY, subresource: "status" }), undefined);
  t.equal(of({ ...APPLY, fieldsV1: { "f:spec": { "f:conversion": {} } } }), undefined, "a part of it");
  t.equal(of({ ...APPLY, fieldsV1: { "f:spec": { "f:group": {} } } }), "flux", "ksvm has changed the storage version");
  const older = { ...APPLY, manager: "kubectl", time: "2026-01-01T00:00:00Z" };
  t.equal(of(older, APPLY), "flux");
  t.equal(of(APPLY, older, { manager: "helm", operation: "Update", fieldsV1: ALL }), "flux");
  t.end();
});

type Case = readonly [
  name: string,
  dryRun: DryRun,
  facts: Partial<CheckFacts> & { readonly isApplied?: boolean },
  expected: Partial<Record<keyof CheckEntry, unknown>>,
];

const cases: readonly Case[] = [
  [
    "can be applied by a client that takes it away, and it is said that others are refused",
    leftFor(APPLIED, LEFT),
    {},
    { verdict: "applicable", apiServer: undefined, notes: [/should not be set .*kubectl apply and Helm .*--apply/] },
  ],
  [
    "is refused from the client that is known to leave it, with what helps",
    leftFor(APPLIED, LEFT),
    { isApplied: true },
    { verdict: "refused", apiServer: LEFT, notes: [/^only an apply by flux is refused.*ksvm migrate -f FILE --apply/] },
  ],
  [
    "can be written by ksvm migrate -f --apply, whoever applied it before",
    leftFor(APPLIED, LEFT),
    { isApplied: true, isReplaced: true },
    { verdict: "applicable", notes: [] },
  ],
  [
    "is refused where the file in place of everything is refused too",
    leftFor(refusedFor(OTHER), LEFT, OTHER),
    {},
    { verdict: "refused", apiServer: `${LEFT}, ${OTHER}`, notes: [] },
  ],
  [
    "is refused where the file in place of everything is refused too, by ksvm migrate -f --apply",
    leftFor(refusedFor(OTHER), LEFT, OTHER),
    { isReplaced: true },
    { verdict: "refused", notes: [] },
  ],
  [
    "is refused where nothing is known of the file in place of everything",
    leftFor({ outcome: "forbidden", said: "no" }, LEFT),
    {},
    { verdict: "refused", notes: [] },
  ],
];

for (const [name, dryRun, { isApplied = false, ...facts }, expected] of cases) {
  await tap.test(`checkCrd(): what the file leaves out and the CRD has ${name}`, (t) => {
    const metadata = isApplied ? { managedFields: [APPLY] } : {};
    const entry = checkCrd(fileWith(["v1", "v2+"]), {
      dryRun,
      failedInTree: [],
      live: crdWith({ metadata }),
      ...facts,
    });
    t.match(entry, expected);
    t.equal(entry.notes.length, (expected.notes as unknown[]).length);
    t.end();
  });
}

await tap.test("checkCrd(): a migration comes first where storedVersions alone is left of a refusal", (t) => {
  const facts = { dryRun: leftFor(refusedFor(STORED), STORED, LEFT), failedInTree: [] };
  const entry = checkCrd(fileWith(["v2+"]), { ...facts, live: crdWith() });
  t.match(entry, { verdict: "needs-migration", apiServer: STORED, notes: [/should not be set/] });
  const applied = crdWith({ metadata: { managedFields: [APPLY] } });
  t.match(checkCrd(fileWith(["v2+"]), { ...facts, live: applied }), { verdict: "refused", reason: /not only for v1/ });
  const written = { ...facts, live: applied, isReplaced: true };
  t.match(checkCrd(fileWith(["v2+"]), written), { verdict: "needs-migration" });
  t.end();
});

await tap.test("asWritten() takes the first of two steps as it takes the file", (t) => {
  const dryRun = leftFor(APPLIED, LEFT);
  const given = { dryRun, intermediateDryRun: dryRun, live: crdWith() };
  t.same(asWritten(given), { dryRun: APPLIED, intermediateDryRun: APPLIED });
  t.equal(asWritten({ ...given, intermediateDryRun: undefined }).intermediateDryRun, undefined);
  t.end();
});
