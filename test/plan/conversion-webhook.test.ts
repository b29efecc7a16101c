import { isDeepStrictEqual } from "node:util";
import tap, { type Test } from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { checkCrd } from "../../src/plan/check.ts";
import type { CheckFacts } from "../../src/plan/check-types.ts";
import type { CrdManifest } from "../../src/plan/crd-manifests.ts";
import { planUpgrade } from "../../src/upgrade/upgrade-steps.ts";
import { type CrdTraits, crdWith } from "../api/crd-with.ts";
import { APPLIED, fileWith } from "./check-situation.ts";

const SERVICE = { service: { namespace: "default", name: "nobody" } };

function webhookAt(clientConfig: object): { readonly strategy: string; readonly webhook: object } {
  return { strategy: "Webhook", webhook: { conversionReviewVersions: ["v1"], clientConfig } };
}

function fileBy(clientConfig: object, versions: readonly string[]): CrdManifest {
  const file = fileWith(versions);
  const spec = { ...(file.object["spec"] as object), conversion: webhookAt(clientConfig) };
  return { ...file, object: { ...file.object, spec } };
}

type Case = readonly [
  name: string,
  live: CrdTraits | undefined,
  file: readonly string[],
  facts: Partial<CheckFacts>,
  /** Of the notes. */
  expected: readonly RegExp[],
];

const MISSING =
  /Service default\/nobody.*the CRD does not call yet.*no client reads or writes an object in another version/;
const TO_START = /start it before this file is applied$/;
const WAITED_FOR = /ksvm migrate -f FILE --apply waits for it before anything is stored in v2$/;

const cases: readonly Case[] = [
  ["is told of, where there are objects", {}, ["v1", "v2+"], { objects: { count: 1 } }, [MISSING, TO_START]],
  ["is told of, where objects cannot be counted", {}, ["v1", "v2+"], {}, [MISSING, TO_START]],
  [
    "is told of beside another one that the CRD has",
    { conversion: webhookAt({ url: "https://192.0.2.1" }) },
    ["v1", "v2+"],
    { objects: { count: 1 } },
    [MISSING, TO_START],
  ],
  [
    "is told of, and that it is waited for with a new storage version",
    { versions: ["v1+"], storedVersions: ["v1"] },
    ["v1", "v2+"],
    { objects: { count: 1 } },
    [MISSING, WAITED_FOR],
  ],
  [
    "is told of, and that it is waited for where the new storage version takes the place of the old one",
    { versions: ["v1+"], storedVersions: ["v1"] },
    ["v2+"],
    { objects: { count: 1 } },
    [MISSING, WAITED_FOR],
  ],
  [
    "is not waited for where the CRD stores in the new version before it is called",
    { versions: ["v1+", "v2"], storedVersions: ["v1"] },
    ["v2+"],
    { objects: { count: 1 } },
    [MISSING, TO_START],
  ],
  [
    "is not waited for where the new storage version is not served, so that nothing can be read in it",
    { versions: ["v1+"], storedVersions: ["v1"] },
    ["v1", "v2+-"],
    { objects: { count: 1 } },
    [MISSING, TO_START],
  ],
  [
    "is told of where the only version that is served is not that of every object",
    {},
    ["v1-", "v2+"],
    { objects: { count: 1 } },
    [MISSING],
  ],
  ["is no matter without objects", {}, ["v1", "v2+"], { objects: { count: 0 } }, []],
  ["is no matter for a new CRD", undefined, ["v1", "v2+"], {}, []],
  [
    "is no matter where the CRD has it",
    { conversion: webhookAt({ ...SERVICE, caBundle: "YQ==" }) },
    ["v1", "v2+"],
    { objects: { count: 1 } },
    [],
  ],
  [
    "is no matter where there is one version, and nothing to convert",
    { versions: ["v2+"], storedVersions: ["v2"] },
    ["v2+"],
    { objects: { count: 1 } },
    [],
  ],
];

/** What the note promises: a step before that of the storage version has API servers call the webhook. */
function assertKept(t: Test, file: CrdManifest, live: CustomResourceDefinition | undefined, isAwaited: boolean): void {
  const { steps } = planUpgrade(file, live, true);
  const isServed = steps.some(({ kind, spec }) => kind === "serve" && isCalledIn(spec, file));
  t.ok(isServed || !isAwaited, "the webhook is called before");
}

function isCalledIn(spec: object | undefined, { object }: CrdManifest): boolean {
  return isDeepStrictEqual((spec as Spec).conversion, (object["spec"] as Spec).conversion);
}

interface Spec {
  readonly conversion?: object;
}

for (const [name, live, file, facts, expected] of cases) {
  await tap.test(`checkCrd(): a conversion webhook that a file brings ${name}`, (t) => {
    const given = { dryRun: APPLIED, failedInTree: [], ...facts, live: live && crdWith(live) };
    const { notes } = checkCrd(fileBy(SERVICE, file), given);
    const [found, ...more] = notes.filter((note) => note.includes("conversion webhook"));
    t.same(more, []);
    t.equal(found !== undefined, expected.length > 0);
    expected.forEach((one) => t.match(found, one));
    assertKept(t, fileBy(SERVICE, file), given.live, expected.includes(WAITED_FOR));
    t.end();
  });
}

await tap.test("checkCrd(): a conversion webhook at a URL is named by it", (t) => {
  const { notes } = checkCrd(fileBy({ url: "https://192.0.2.1/" }, ["v1", "v2+"]), {
    dryRun: APPLIED,
    failedInTree: [],
    live: crdWith(),
  });
  t.match(notes, [/conversion webhook \(https:\/\/192\.0\.2\.1\/\)/]);
  t.end();
});
