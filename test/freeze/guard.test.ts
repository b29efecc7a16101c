import tap from "tap";

import { FREEZE_REASON } from "../../src/api/names.ts";
import { type GuardIdentity, isDenialBy, WEBHOOK_GUARD } from "../../src/freeze/guard.ts";

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
