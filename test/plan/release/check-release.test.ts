import tap from "tap";
import { storageVersionHashOf } from "../../../src/api/crd.ts";
import { UNKNOWN_HASH } from "../../../src/api/migration.ts";
import {
  asksForCount,
  checkResource,
  type ReleaseEntry,
  type ResourceFacts,
  type Target,
} from "../../../src/plan/release/check-release.ts";
import { canDecode, knownRelease, minorReleaseOf, versionOfHash } from "../../../src/resources/known-versions.ts";

const GROUP = "autoscaling";
const KIND = "HorizontalPodAutoscaler";
const [V1, V2, BETA2, ALPHA] = ["v1", "v2", "v2beta2", "v9"].map((version) =>
  storageVersionHashOf(GROUP, version, KIND),
);
const NAME = "horizontalpodautoscalers.autoscaling";
const TO_36: Target = { release: "1.36", isOlder: false };

function facts(other: Partial<ResourceFacts> = {}): ResourceFacts {
  const request = { group: GROUP, version: "v2", resource: "horizontalpodautoscalers" };
  return { name: NAME, kind: KIND, request, hash: V2 ?? "", persisted: [V2 ?? ""], ...other };
}

const hashes = (...all: readonly (string | undefined)[]): readonly string[] => all.map((one) => one ?? "");

const cases: readonly [
  name: string,
  target: Target,
  facts: Partial<ResourceFacts>,
  expected: Partial<Record<keyof ReleaseEntry, unknown>>,
][] = [
  [
    "it reads what it also writes",
    TO_36,
    {},
    { verdict: "readable", writes: "autoscaling/v2", stored: ["autoscaling/v2"] },
  ],
  ["it reads every version in the history", TO_36, { persisted: hashes(V1, V2) }, { verdict: "readable" }],
  [
    "a version in the history that it does not read needs a migration",
    TO_36,
    { persisted: hashes(BETA2, V2), objects: 3 },
    {
      verdict: "needs-migration",
      reason: "objects may be stored in autoscaling/v2beta2, which Kubernetes 1.36 cannot read",
      steps: [`rewrite them in autoscaling/v2: ksvm migrate ${NAME}`],
    },
  ],
  [
    "negative control: the release before reads the same history",
    { release: "1.35", isOlder: false },
    { persisted: hashes(BETA2, V2), objects: 3 },
    { verdict: "readable" },
  ],
  [
    "what is not known does not hide it",
    TO_36,
    { persisted: hashes(BETA2, V2, UNKNOWN_HASH) },
    { verdict: "needs-migration" },
  ],
  ["without objects nothing is lost", TO_36, { persisted: hashes(BETA2, V2), objects: 0 }, { verdict: "readable" }],
  [
    "without objects, and in doubt, something may be",
    TO_36,
    { persisted: hashes(BETA2, V2), objects: 0, doubt: "it has no StorageState" },
    { verdict: "needs-migration" },
  ],
  ["objects that cannot be counted are there", TO_36, { persisted: hashes(BETA2, V2) }, { verdict: "needs-migration" }],
  [
    "a version that is written now and cannot be read there loses data",
    TO_36,
    { hash: BETA2 ?? "", persisted: hashes(BETA2), objects: 1 },
    {
      verdict: "data-loss",
      steps: [/have the API servers write a version that Kubernetes 1\.36 reads/, /save what you need/],
    },
  ],
  [
    "before a downgrade the emulated version helps",
    { release: "1.36", isOlder: true },
    { hash: BETA2 ?? "", persisted: hashes(BETA2), objects: 1 },
    { verdict: "data-loss", steps: [/--emulated-version=1\.36/, /ksvm migrate/, /ksvm check --control-plane 1\.36/] },
  ],
  ["no StorageState is unknown", TO_36, { persisted: [], doubt: "it has no StorageState" }, { verdict: "unknown" }],
  [
    "versions that may have been missed are unknown",
    TO_36,
    { persisted: hashes(UNKNOWN_HASH, V2) },
    { verdict: "unknown", stored: ["unknown", "autoscaling/v2"], steps: [`rewrite them: ksvm migrate ${NAME}`] },
  ],
  [
    "a hash that no release has is unknown",
    TO_36,
    { persisted: hashes(ALPHA, V2) },
    { verdict: "unknown", reason: new RegExp(`no release of the table has a ${KIND} with the storageVersionHash `) },
  ],
  ["a hash that discovery shows and no release has is unknown", TO_36, { hash: ALPHA ?? "" }, { verdict: "unknown" }],
  [
    "the hash of another kind is unknown",
    TO_36,
    { persisted: hashes(storageVersionHashOf("apps", "v1", "Deployment"), V2) },
    { verdict: "unknown" },
  ],
];

for (const [name, target, given, expected] of cases) {
  await tap.test(`checkResource(): ${name}`, (t) => {
    t.match(checkResource(target, facts(given)), expected);
    t.end();
  });
}

await tap.test("objects are counted where some may not be readable, and nowhere else", (t) => {
  t.notOk(asksForCount(checkResource(TO_36, facts())));
  t.ok(asksForCount(checkResource(TO_36, facts({ persisted: hashes(BETA2, V2) }))));
  t.end();
});

await tap.test("versionOfHash() knows the hashes that API servers show", (t) => {
  // As kubectl get --raw /api/v1 and /apis/apps/v1 of any cluster show them.
  t.same(versionOfHash("xPOwRZ+Yhw8="), { apiVersion: "v1", kind: "Pod" });
  t.same(versionOfHash("8aSe+NMegvE="), { apiVersion: "apps/v1", kind: "Deployment" });
  t.equal(versionOfHash(UNKNOWN_HASH), undefined);
  t.equal(versionOfHash(""), undefined);
  t.end();
});

await tap.test("canDecode() tells what is decodable from what is served", (t) => {
  const flowSchema = { apiVersion: "flowcontrol.apiserver.k8s.io/v1beta3", kind: "FlowSchema" };
  t.ok(canDecode("1.36", flowSchema), "not served since 1.32");
  t.notOk(canDecode("1.36", { ...flowSchema, apiVersion: "flowcontrol.apiserver.k8s.io/v1alpha1" }));
  t.notOk(canDecode("1.99", flowSchema));
  t.notOk(canDecode("1.36", { ...flowSchema, kind: "Flow" }));
  t.end();
});

await tap.test("minorReleaseOf() and knownRelease() take releases of the table, and nothing else", (t) => {
  const versions = ["1.35", "v1.35", "1.35.2", "v1.35.2+k3s1", "v1.35.0-rc.1"];
  t.same(new Set(versions.map(minorReleaseOf)), new Set(["1.35"]));
  for (const text of ["", "1", "35", "1.", "1.35.", "1.35.x", "2.0", "1.035", "1.1234", "latest", "1.35 "]) {
    t.equal(minorReleaseOf(text), undefined, text);
  }
  t.equal(knownRelease("1.36"), "1.36");
  t.throws(() => knownRelease("1.29"), {
    code: "ReleaseUnknown",
    message: /this ksvm knows Kubernetes 1\.\d+ to 1\.\d+$/,
  });
  t.end();
});
