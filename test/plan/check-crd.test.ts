import tap from "tap";
import { APPLIED, fileWith, refusedFor } from "./check-situation.ts";
import { checkCrd } from "../../src/plan/check.ts";
import type { CheckEntry, CheckFacts } from "../../src/plan/check-types.ts";
import { intermediateOf } from "../../src/plan/version-changes.ts";
import { type CrdTraits, crdWith } from "../api/crd-with.ts";

const OLD_WORDING = "must appear in spec.versions";
const NEW_WORDING =
  "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage " +
  "migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions";
const OTHER = 'spec.scope: Invalid value: "Cluster": field is immutable';
const forbidden = { outcome: "forbidden", said: 'customresourcedefinitions "a" is forbidden' } as const;
const prunedBy = (manager: string): NonNullable<CrdTraits["metadata"]> => ({
  managedFields: [
    { manager: "older", subresource: "status", time: "2026-01-01T00:00:00Z", fieldsV1: STORED },
    { manager, subresource: "status", time: "2026-02-01T00:00:00Z", fieldsV1: STORED },
    { manager: "main", time: "2026-03-01T00:00:00Z", fieldsV1: STORED },
  ],
});
const WEBHOOK = { strategy: "Webhook" };
const NAMED = { objects: 3, versions: ["v1"], lookedAt: 7, isPartial: false };
const STORED = { "f:status": { "f:storedVersions": {} } };

type Case = readonly [
  name: string,
  live: CrdTraits | undefined,
  file: readonly string[],
  facts: Partial<CheckFacts>,
  expected: Partial<Record<keyof CheckEntry, unknown>>,
];

const cases: readonly Case[] = [
  ["a new CRD can be applied", undefined, ["v1+"], {}, { verdict: "applicable", removedVersions: [], notes: [] }],
  [
    "a file that keeps every version can be applied",
    {},
    ["v1", "v2+"],
    { objects: { count: 7 } },
    { verdict: "applicable", objects: 7, notes: [], storageVersion: "v2", storedVersions: ["v1", "v2"] },
  ],
  [
    "a change of the storage version can be applied, and says that objects stay as they are",
    { storedVersions: ["v2"] },
    ["v1+", "v2"],
    {},
    { verdict: "applicable", notes: [/^it changes the storage version from v2 to v1/] },
  ],
  [
    "objects that no version shows are told of",
    { versions: ["v1-", "v2+-"], storedVersions: ["v2"] },
    ["v1", "v2+"],
    {},
    { verdict: "applicable", notes: [/its objects cannot be listed now.*serves no version.*served: true/] },
  ],
  [
    "a version is not known to be unused where no version shows the objects",
    { versions: ["v1-", "v2+-"], storedVersions: ["v2"] },
    ["v2+"],
    {},
    { verdict: "unknown", reason: /drops v1, and the objects cannot be listed: .*serves no version.*served: true/ },
  ],
  [
    "managedFields that name a version which leaves are converted with the migration",
    {},
    ["v2+"],
    { objects: { count: 7 }, managedFields: NAMED },
    {
      verdict: "needs-migration",
      managedFields: NAMED,
      steps: [/ksvm migrate widgets\.example\.com$/, "apply this file"],
      notes: [/^managedFields of 3 of 7 objects name v1, .*: the migration has them name the storage version$/],
    },
  ],
  [
    "managedFields of objects that a webhook converts are told of, and left to their clients",
    { conversion: { strategy: "Webhook" } },
    ["v2+"],
    { objects: { count: 20_000 }, managedFields: { ...NAMED, lookedAt: 10_000, isPartial: true } },
    {
      verdict: "needs-migration",
      steps: [/ksvm migrate widgets\.example\.com$/, "apply this file"],
      notes: [/^managedFields of 3 of the first 10000 objects name v1, .*a webhook converts the objects/],
    },
  ],
  [
    "managedFields that name no version which leaves are no matter",
    {},
    ["v2+"],
    { managedFields: { ...NAMED, objects: 0, versions: [] } },
    {
      verdict: "needs-migration",
      managedFields: undefined,
      notes: [],
      steps: [/ksvm migrate widgets\.example\.com$/, "apply this file"],
    },
  ],
  [
    "a version that storedVersions does not list can be dropped, and what is not known is said",
    { storedVersions: ["v2"], metadata: prunedBy("kubectl-patch") },
    ["v2+"],
    { objects: { count: 3 } },
    {
      verdict: "applicable",
      removedVersions: ["v1"],
      notes: [
        /rests on storedVersions alone \(kubectl-patch wrote it last, at 2026-02-01T00:00:00Z\).*ksvm migrate --force/,
      ],
    },
  ],
  [
    "a migration comes first where storedVersions lists what is dropped, in the older wording",
    {},
    ["v2+"],
    { dryRun: refusedFor(`status.storedVersions[0]: Invalid value: "v1": ${OLD_WORDING}`), objects: { count: 1_000 } },
    {
      verdict: "needs-migration",
      apiServer: /must appear/,
      removedVersions: ["v1"],
      estimate: { requests: 1_002, seconds: 105 },
      steps: [/ksvm migrate widgets\.example\.com$/, "apply this file"],
    },
  ],
  [
    "a migration comes first where storedVersions lists what is dropped, in the newer wording",
    {},
    ["v2+"],
    { dryRun: refusedFor(`status.storedVersions[0]: Invalid value: "v1": ${NEW_WORDING}`) },
    { verdict: "needs-migration", objects: undefined, estimate: undefined },
  ],
  [
    "a migration comes first also where the user may send no dry run",
    {},
    ["v2+"],
    { dryRun: forbidden },
    { verdict: "needs-migration" },
  ],
  [
    "a migration comes first, and cannot start where no version is served",
    { versions: ["v1-", "v2+-"] },
    ["v2+"],
    { dryRun: refusedFor(`status.storedVersions[0]: Invalid value: "v1": ${NEW_WORDING}`) },
    { verdict: "needs-migration", notes: ["the migration cannot start now: no version is served"] },
  ],
  [
    "a new storage version and the end of the old one in one step takes two",
    { versions: ["v1+"], storedVersions: ["v1"] },
    ["v2+"],
    {
      dryRun: refusedFor(`status.storedVersions[0]: Invalid value: "v1": ${NEW_WORDING}`),
      intermediateDryRun: APPLIED,
      objects: { count: 4 },
    },
    {
      verdict: "two-steps",
      steps: [/with v1 kept in spec\.versions/, /migrate the objects to v2.*ksvm migrate/, "apply this file as it is"],
      notes: ["a dry run of the first step was accepted"],
      estimate: { requests: 5, seconds: 101 },
    },
  ],
  [
    "two steps are no help where the API server refuses the first one",
    { versions: ["v1+"], storedVersions: ["v1"] },
    ["v2+"],
    {
      dryRun: refusedFor(`status.storedVersions[0]: Invalid value: "v1": ${NEW_WORDING}`),
      intermediateDryRun: refusedFor(OTHER),
    },
    { verdict: "refused", reason: /the API server refuses the file with v1 too/ },
  ],
  [
    "what the API server refuses for another reason is refused, also where a migration is needed",
    {},
    ["v2+"],
    { dryRun: refusedFor(`status.storedVersions[0]: Invalid value: "v1": ${NEW_WORDING}`, OTHER) },
    { verdict: "refused", reason: /not only for v1 .*field is immutable/, estimate: undefined },
  ],
  [
    "what the API server refuses without a list of causes is refused",
    {},
    [],
    { dryRun: { outcome: "refused", said: "failed to create typed patch object", causes: [] } },
    { verdict: "refused", apiServer: "failed to create typed patch object" },
  ],
  [
    "what the API server refuses is refused",
    {},
    ["v1", "v2+"],
    { dryRun: refusedFor(OTHER) },
    { verdict: "refused", apiServer: OTHER },
  ],
  [
    "nothing is known where the user may send no dry run",
    {},
    ["v1", "v2+"],
    { dryRun: forbidden },
    { verdict: "unknown" },
  ],
  [
    "nothing is known where a version is dropped and the objects cannot be listed",
    { storedVersions: ["v2"] },
    ["v2+"],
    { objects: { problem: "conversion webhook for example.com/v1, Kind=Widget failed" } },
    { verdict: "unknown", reason: /drops v1, and the objects cannot be listed: conversion webhook/ },
  ],
  [
    "a file that keeps every version can be applied where the objects cannot be listed, and that is said",
    { storedVersions: ["v2"] },
    ["v1", "v2+"],
    { objects: { problem: "conversion webhook for example.com/v1, Kind=Widget failed" } },
    { verdict: "applicable", notes: [/^its objects cannot be listed now, .*: conversion webhook/] },
  ],
  [
    "data is lost where objects are stored in a version that neither has",
    { versions: ["v2+"], storedVersions: ["v2"] },
    ["v2+", "v3"],
    { objects: { problem: "why", unreadableIn: "v1" } },
    { verdict: "data-loss", reason: /stored in v1/, steps: [/add v1 .*served: false/, /--force/, "apply this file"] },
  ],
  [
    "data is lost above all: a refusal does not hide it",
    { versions: ["v2+"], storedVersions: ["v2"] },
    ["v2+"],
    { dryRun: refusedFor(OTHER), objects: { problem: "why", unreadableIn: "v1" } },
    { verdict: "data-loss", apiServer: OTHER },
  ],
  [
    "a file that brings the lost version back can be applied",
    { versions: ["v2+"], storedVersions: ["v2"] },
    ["v1-", "v2+"],
    { objects: { problem: "why", unreadableIn: "v1" } },
    { verdict: "applicable", notes: [/^it brings v1 back/] },
  ],
  [
    "a file without the conversion webhook loses what a failed in-tree migration may have left in a version that it keeps",
    { storedVersions: ["v2"], conversion: WEBHOOK },
    ["v1-", "v2+"],
    { failedInTree: ["bump"] },
    {
      verdict: "data-loss",
      reason: /^this file has no conversion webhook, so that nothing would convert v1 to v2, and .* failed \(bump\)/,
    },
  ],
  [
    "data may be lost where Kubernetes' own migration failed, and its version is no longer in storedVersions",
    { storedVersions: ["v2"] },
    ["v2+"],
    { failedInTree: ["bump"] },
    { verdict: "data-loss", reason: /migration of it failed \(bump\)/ },
  ],
  [
    "migrations of Kubernetes' own migrator that this user may not list are told of where one of them may have pruned",
    { storedVersions: ["v2"] },
    ["v2+"],
    { failedInTree: undefined },
    {
      verdict: "applicable",
      notes: [/rests on storedVersions alone/, /^this user may not list storageversionmigrations/],
    },
  ],
  [
    "migrations that this user may not list do not matter where no version is dropped",
    { storedVersions: ["v2"] },
    ["v1", "v2+"],
    { failedInTree: undefined },
    { verdict: "applicable", notes: [] },
  ],
  [
    "a failed migration of Kubernetes' own migrator is no loss where no version is dropped",
    { storedVersions: ["v2"] },
    ["v1", "v2+"],
    { failedInTree: ["bump"] },
    { verdict: "applicable" },
  ],
  [
    "data is lost with a CRD that is being deleted, whatever is applied",
    { metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } },
    ["v1", "v2+"],
    {},
    { verdict: "data-loss", reason: /is being deleted/, steps: ["wait until it is gone", /without objects/] },
  ],
  [
    "a migration comes first where a webhook converts, and nothing would with the file",
    { conversion: WEBHOOK },
    ["v1-", "v2+"],
    {},
    {
      verdict: "needs-migration",
      reason: /^this file has no conversion webhook, so that nothing would convert v1 to v2/,
      notes: [],
    },
  ],
  [
    "clients of another version are told of where nothing converts any more",
    { conversion: WEBHOOK, storedVersions: ["v2"] },
    ["v1", "v2+"],
    {},
    { verdict: "applicable", notes: [/serves v1 beside v2: clients of v1 get what is stored as v2/] },
  ],
  [
    "a new storage version and the end of the conversion in one step takes two",
    { conversion: WEBHOOK, versions: ["v1+", "v2"], storedVersions: ["v1"] },
    ["v1-", "v2+"],
    { intermediateDryRun: APPLIED },
    {
      verdict: "two-steps",
      reason: /^this file makes v2 the storage version instead of v1 and has no conversion webhook/,
      steps: [/^apply this file with spec\.conversion as the CRD has it$/, /ksvm migrate/, "apply this file as it is"],
      notes: [/dry run/, /^it changes the storage version/],
    },
  ],
  [
    "a file that serves no version is told of",
    undefined,
    ["v1-", "v2+-"],
    {},
    { verdict: "applicable", notes: ["this file serves no version: no client can read or write the objects"] },
  ],
];

for (const [name, live, file, facts, expected] of cases) {
  await tap.test(`checkCrd(): ${name}`, (t) => {
    const given = { dryRun: APPLIED, failedInTree: [], ...facts, live: live && crdWith(live) };
    const entry = checkCrd(fileWith(file), given);
    t.match(entry, expected);
    for (const [field, value] of Object.entries(expected)) {
      const found: unknown = entry[field as keyof CheckEntry];
      t.equal(
        Array.isArray(value) ? (found as unknown[]).length : found === undefined,
        Array.isArray(value) ? value.length : value === undefined,
        field,
      );
    }
    t.end();
  });
}

await tap.test("checkCrd(): an API of CRDs that is no longer served is refused, with what to do", (t) => {
  const file = { ...fileWith([]), apiVersion: "apiextensions.k8s.io/v1beta1" };
  const entry = checkCrd(file, { dryRun: refusedFor("any"), failedInTree: [], live: crdWith() });
  t.match(entry, {
    verdict: "refused",
    reason: /v1beta1 is not served since Kubernetes 1\.22/,
    steps: [/for apiextensions\.k8s\.io\/v1:/],
  });
  t.end();
});

await tap.test("intermediateOf() keeps what converts the objects", (t) => {
  const live = crdWith({ conversion: WEBHOOK, versions: ["v1+", "v2"], storedVersions: ["v1"] });
  t.match(intermediateOf(fileWith(["v1", "v2+"]), live), {
    spec: { conversion: WEBHOOK, versions: [{ name: "v1" }, { name: "v2", storage: true }] },
  });
  t.equal(intermediateOf(fileWith(["v1+", "v2"]), live), undefined, "nothing is stored in v2");
  t.end();
});

await tap.test("intermediateOf() keeps what is stored, and only where the storage version is dropped", (t) => {
  t.equal(intermediateOf(fileWith(["v1", "v2+"]), crdWith()), undefined);
  const live = crdWith({ versions: ["v0", "v1-", "v2+"], storedVersions: ["v1", "v2"] });
  t.match(intermediateOf(fileWith(["v3+"]), live), {
    spec: {
      versions: [
        { name: "v3", storage: true },
        { name: "v1", served: false, storage: false },
        { name: "v2", served: true, storage: false },
      ],
    },
  });
  t.match(intermediateOf({ ...fileWith([]), object: {} }, live), {
    spec: { versions: [{ name: "v1" }, { name: "v2" }] },
  });
  t.end();
});
