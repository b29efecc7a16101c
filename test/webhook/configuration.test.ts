import tap from "tap";
import { GENERATION_ANNOTATION } from "../../src/api/names.ts";
import { coversFreeze } from "../../src/webhook/coverage.ts";
import { generationOf } from "../../src/webhook/generation.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";

const CONFIGURATION = webhookConfigurationOf({ clientConfig: { url: "https://webhook.example.com" } });
const [webhook = {}] = CONFIGURATION.webhooks;
const [rule = {}] = webhook["rules"] as readonly object[];
const widest = { apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"] };

/** What AKS adds to every webhook. */
const OF_AKS = {
  matchExpressions: [
    { key: "control-plane", operator: "NotIn", values: ["true"] },
    { key: "kubernetes.azure.com/managedby", operator: "NotIn", values: ["aks"] },
  ],
};

const cases: readonly [what: string, webhooks: unknown, covers: boolean][] = [
  ["what is shipped", [webhook], true],
  ["another webhook beside it", [{ name: "other.example.com" }, webhook], true],
  ["other match conditions", [{ ...webhook, matchConditions: [] }], true],
  ["selectors that the API server fills in", [{ ...webhook, objectSelector: undefined }], true],
  ["one more rule", [{ ...webhook, rules: [{ operations: ["CREATE"] }, rule] }], true],
  ["a rule that selects everything", [{ ...webhook, rules: [widest] }], true],
  ["no webhook", [], false],
  ["no list", undefined, false],
  ["a webhook of another name", [{ ...webhook, name: "other.example.com" }], false],
  ["failurePolicy Ignore", [{ ...webhook, failurePolicy: "Ignore" }], false],
  ["an object selector", [{ ...webhook, objectSelector: { matchLabels: { a: "b" } } }], false],
  ["a namespaceSelector, which exempts no CRD", [{ ...webhook, namespaceSelector: OF_AKS }], true],
  ["the same as an object selector", [{ ...webhook, objectSelector: OF_AKS }], false],
  ["no rule", [{ ...webhook, rules: [] }], false],
  ["no rules", [{ ...webhook, rules: undefined }], false],
  ["other groups", [{ ...webhook, rules: [{ ...rule, apiGroups: ["apps"] }] }], false],
  ["other versions", [{ ...webhook, rules: [{ ...rule, apiVersions: ["v2"] }] }], false],
  ["other operations", [{ ...webhook, rules: [{ ...rule, operations: ["CREATE"] }] }], false],
  ["other resources", [{ ...webhook, rules: [{ ...rule, resources: ["customresourcedefinitions/status"] }] }], false],
  ["another scope", [{ ...webhook, rules: [{ ...rule, scope: "Namespaced" }] }], false],
];

for (const [what, webhooks, covers] of cases) {
  await tap.test(`coversFreeze() is ${covers} for ${what}`, async (t) => {
    t.equal(coversFreeze({ metadata: {}, webhooks } as object as Parameters<typeof coversFreeze>[0]), covers);
  });
}

await tap.test("generationOf() is 0 for whatever is no generation", async (t) => {
  for (const stamp of [
    "",
    "0",
    "-1",
    "01",
    "1.5",
    "1e9",
    "NaN",
    "Infinity",
    "0x10",
    " 7",
    "7 ",
    "7\n",
    "٣",
    "1234567890",
  ]) {
    t.equal(generationOf({ metadata: { annotations: { [GENERATION_ANNOTATION]: stamp } } }), 0, JSON.stringify(stamp));
  }
  t.equal(generationOf({ metadata: {} }), 0);
  t.equal(generationOf({ metadata: { annotations: {} } }), 0);
  t.equal(generationOf({ metadata: { annotations: { [GENERATION_ANNOTATION]: "999999999" } } }), 999_999_999);
});
