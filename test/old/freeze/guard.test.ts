import type { ServerResponse } from "node:http";
import * as fc from "fast-check";
import tap from "tap";
import { FREEZE_REASON, MIGRATING_ANNOTATION } from "../../../src/api/names.ts";
import { freezePolicyOf } from "../../../src/old/freeze/freeze-policy.ts";
import { PROBE_LABEL, PROBE_VERSION, labelChangePatch, storageChangePatch } from "../../../src/old/freeze/freeze-probe.ts";
import { proveFreeze } from "../../../src/old/freeze/freeze-proof.ts";
import { type GuardIdentity, WEBHOOK_GUARD, isDenialBy } from "../../../src/old/freeze/guard.ts";
import { ApiClient } from "../../../src/old/kube/client.ts";
import { crdWith } from "../../api/crd-with.ts";
import { sendJson, sendStatus, startServer } from "../kube/local-server.ts";
import { TEST_SEED } from "../../seed.ts";

const CRD = "widgets.example.com";
const POLICY: GuardIdentity = { kind: "policy", name: `ksvm-freeze.${CRD}` };
const byWebhook = `admission webhook "${WEBHOOK_GUARD.name}" denied the request: ${FREEZE_REASON}: cannot change`;
const byPolicy =
  `customresourcedefinitions.apiextensions.k8s.io "${CRD}" is forbidden: ValidatingAdmissionPolicy '${POLICY.name}' ` +
  `with binding '${POLICY.name}' denied request: ${FREEZE_REASON}: cannot change`;

const cases: readonly [name: string, guard: GuardIdentity, message: string, ours: boolean][] = [
  ["the webhook's own", WEBHOOK_GUARD, byWebhook, true],
  ["the policy's own", POLICY, byPolicy, true],
  ["the policy's where the webhook is meant", WEBHOOK_GUARD, byPolicy, false],
  ["the webhook's where the policy is meant", POLICY, byWebhook, false],
  ["another webhook's with our reason", WEBHOOK_GUARD, byWebhook.replace(WEBHOOK_GUARD.name, "other.io"), false],
  ["a webhook's whose name begins like ours", WEBHOOK_GUARD, byWebhook.replace('" denied', '.evil" denied'), false],
  ["a webhook's whose name ends like ours", WEBHOOK_GUARD, byWebhook.replace('webhook "', 'webhook "evil.'), false],
  ["ours with words before it", WEBHOOK_GUARD, `Error: ${byWebhook}`, false],
  ["another's that quotes ours", WEBHOOK_GUARD, `admission webhook "o.io" denied the request: ${byWebhook}`, false],
  ["our name with another reason", WEBHOOK_GUARD, byWebhook.replace(FREEZE_REASON, "TooLate"), false],
  ["our name with our reason later on", WEBHOOK_GUARD, byWebhook.replace(FREEZE_REASON, `x ${FREEZE_REASON}`), false],
  ["a longer reason", WEBHOOK_GUARD, byWebhook.replace(`${FREEZE_REASON}:`, `${FREEZE_REASON}Not:`), false],
  ["our webhook failing", WEBHOOK_GUARD, `failed calling webhook "${WEBHOOK_GUARD.name}": timeout`, false],
  [
    "the authorizer's",
    WEBHOOK_GUARD,
    `customresourcedefinitions.apiextensions.k8s.io "${CRD}" is forbidden: User "jane" cannot patch resource ` +
      `"customresourcedefinitions" in API group "apiextensions.k8s.io" at the cluster scope`,
    false,
  ],
  ["the policy's about another CRD", POLICY, byPolicy.replace(`"${CRD}"`, '"gadgets.example.com"'), false],
  ["another policy's with our reason", POLICY, byPolicy.replace(`'${POLICY.name}' with`, "'other' with"), false],
  ["our policy's by another binding", POLICY, byPolicy.replace(`binding '${POLICY.name}'`, "binding 'other'"), false],
  ["the policy's with another reason", POLICY, byPolicy.replace(FREEZE_REASON, "TooLate"), false],
  ["nothing", POLICY, "", false],
];

for (const [name, guard, message, ours] of cases) {
  await tap.test(`isDenialBy() is ${ours} when the message is ${name}`, (t) => {
    t.equal(isDenialBy(guard, CRD, message), ours);
    t.end();
  });
}

const AT_RESOURCE_VERSION = { op: "add", path: "/metadata/resourceVersion", value: "100" };

await tap.test("storageChangePatch() moves the storage version to another one when there is one", (t) => {
  t.same(storageChangePatch(crdWith({ versions: ["v1", "v2+", "v3-"] })), [
    AT_RESOURCE_VERSION,
    { op: "add", path: "/spec/versions/1/storage", value: false },
    { op: "add", path: "/spec/versions/0/storage", value: true },
  ]);
  t.end();
});

await tap.test("storageChangePatch() adds a version that is not served when there is only one", (t) => {
  t.same(storageChangePatch(crdWith({ versions: ["v1+"] })), [
    AT_RESOURCE_VERSION,
    { op: "copy", from: "/spec/versions/0", path: "/spec/versions/1" },
    { op: "add", path: "/spec/versions/1/name", value: PROBE_VERSION },
    { op: "add", path: "/spec/versions/1/served", value: false },
    { op: "add", path: "/spec/versions/0/storage", value: false },
    { op: "add", path: "/spec/versions/1/storage", value: true },
  ]);
  t.end();
});

await tap.test("storageChangePatch() takes storage from the one version that has it, and gives it to another", (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 5 }), fc.nat(), (count, choice) => {
      const storage = choice % count;
      const versions = Array.from({ length: count }, (_, index) => `v${index}${index === storage ? "+" : ""}`);
      const [taken, given, ...more] = storageChangePatch(crdWith({ versions })).filter(({ path }) =>
        path.endsWith("/storage"),
      );
      t.same(taken, { op: "add", path: `/spec/versions/${storage}/storage`, value: false });
      t.match(given, { op: "add", value: true });
      return given?.path !== taken?.path && more.length === 0;
    }),
    { seed: TEST_SEED },
  );
  t.end();
});

await tap.test("labelChangePatch() adds a label and keeps the others, at the resourceVersion that was read", (t) => {
  const patch = labelChangePatch(crdWith({ metadata: { labels: { app: "widgets" } } }));
  const value = { app: "widgets", [PROBE_LABEL]: "true" };
  t.same(patch, [AT_RESOURCE_VERSION, { op: "add", path: "/metadata/labels", value }]);
  t.end();
});

const FROZEN_CRD = crdWith({ metadata: { annotations: { [MIGRATING_ANNOTATION]: "true" } } });
const CRD_NAME = FROZEN_CRD.metadata.name;
const POLICY_GUARD = { kind: "policy", name: "ksvm-widgets" } as const;
const FORBIDDEN = `customresourcedefinitions.apiextensions.k8s.io "${CRD_NAME}" is forbidden: `;

function deniedBy(policy: string, reason = FREEZE_REASON): string {
  return `${FORBIDDEN}ValidatingAdmissionPolicy '${policy}' with binding '${policy}' denied request: ${reason}: it is frozen`;
}

function refusal(status: number, message: string) {
  return (response: ServerResponse): unknown => sendStatus(response, status, { reason: "Forbidden", message });
}

for (const [what, answer, isProof] of [
  ["its guard denies", refusal(422, deniedBy(POLICY_GUARD.name)), true],
  ["another policy denies", refusal(422, deniedBy("others")), false],
  ["its guard denies for another reason", refusal(422, deniedBy(POLICY_GUARD.name, "Other")), false],
  [
    "a webhook denies in the words of its guard",
    refusal(403, `admission webhook "x" denied: ${deniedBy(POLICY_GUARD.name)}`),
    false,
  ],
  ["the authorizer refuses", refusal(403, `${FORBIDDEN}User "a" cannot patch resource "x"`), false],
  ["the API server is busy", refusal(429, "too many requests"), false],
  ["a balancer answers 404", (response: ServerResponse) => response.writeHead(404).end("<html></html>"), false],
  ["no answer comes", (response: ServerResponse) => response.destroy(), false],
] as const) {
  await tap.test(`proveFreeze() ${isProof ? "takes it for proof" : "proves nothing"} where ${what}`, async (t) => {
    let writes = 0;
    const server = await startServer(t, ({ method }, response) =>
      // The change of the storage version comes first, and that of a label after it.
      method === "PATCH" && writes++ === 0 ? answer(response) : sendJson(response, 200, FROZEN_CRD),
    );
    const { signal } = new AbortController();
    const { proven } = await proveFreeze(new ApiClient(server.transport()), {
      crdName: CRD_NAME,
      guard: POLICY_GUARD,
      signal,
    });
    t.equal(proven, isProof);
    t.equal(writes, isProof ? 2 : 1);
  });
}

const DNS_SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

await tap.test("freezePolicyOf() finds a valid name for every CRD name", (t) => {
  const label = "a".repeat(60);
  const names = [
    "widgets.example.com",
    `${label}.${label}.${label}.${"b".repeat(58)}`,
    `${label}.${label}.${label}.${"b".repeat(59)}`,
    `${label}.${label}.${label}.${"b".repeat(62)}c.d`,
    `${label}.${label}.${label}.${"b".repeat(62)}d.d`,
    // The cut falls behind a dash and behind a dot.
    `${label}.${label}.${label}.${"a".repeat(24)}-${"b".repeat(36)}`,
    `${label}.${label}.${label}.${"a".repeat(24)}.${"b".repeat(36)}`,
    `${"a.".repeat(126)}a`,
  ].map((name) => ({ name, policyName: freezePolicyOf(name).policy.metadata.name }));
  for (const { name, policyName } of names) {
    t.match(policyName, DNS_SUBDOMAIN, name);
    t.ok(policyName.length <= 253, `${policyName.length} characters`);
    t.equal(freezePolicyOf(name).binding.metadata.name, policyName);
  }
  t.equal(new Set(names.map(({ policyName }) => policyName)).size, names.length, "no two share a name");
  t.end();
});
