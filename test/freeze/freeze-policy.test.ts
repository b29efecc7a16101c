import tap from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { FROZEN_EXPRESSION, STORAGE_CHANGED_EXPRESSION } from "../../src/freeze/freeze-cel.ts";
import { freezePolicyOf } from "../../src/freeze/freeze-policy.ts";
import { STAMP } from "../../src/webhook/generation.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";

const DNS_SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

await tap.test("freezePolicyOf() matches updates of one CRD and denies", (t) => {
  const { policy, binding } = freezePolicyOf("widgets.example.com", { labels: { a: "b" }, annotations: { c: "d" } });
  const metadata = {
    name: "ksvm-freeze.widgets.example.com",
    labels: { a: "b", "app.kubernetes.io/managed-by": "ksvm" },
    annotations: { c: "d" },
  };
  t.same(policy.metadata, metadata);
  t.same(binding, {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingAdmissionPolicyBinding",
    metadata,
    spec: { policyName: "ksvm-freeze.widgets.example.com", validationActions: ["Deny"] },
  });
  t.match(policy, {
    kind: "ValidatingAdmissionPolicy",
    spec: {
      failurePolicy: "Fail",
      matchConstraints: {
        matchPolicy: "Equivalent",
        resourceRules: [{ operations: ["UPDATE"], resourceNames: ["widgets.example.com"] }],
      },
      matchConditions: [{ expression: FROZEN_EXPRESSION }],
      validations: [{ reason: "Forbidden", message: /^StorageVersionFrozen: .*"widgets\.example\.com"/ }],
    },
  });
  t.end();
});

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

await tap.test("webhookConfigurationOf() fails closed, for storage changes of frozen CRDs only", (t) => {
  const clientConfig = { url: "https://127.0.0.1:8443/validate", caBundle: "LS0t" };
  const rule = {
    apiGroups: ["apiextensions.k8s.io"],
    apiVersions: ["v1"],
    operations: ["UPDATE"],
    resources: ["customresourcedefinitions"],
    scope: "Cluster",
  };
  t.same(webhookConfigurationOf({ clientConfig }), {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: WEBHOOK_NAME, labels: { "app.kubernetes.io/managed-by": "ksvm" }, annotations: STAMP },
    webhooks: [
      {
        name: WEBHOOK_NAME,
        clientConfig,
        rules: [rule],
        matchPolicy: "Equivalent",
        objectSelector: {},
        matchConditions: [
          { name: "frozen", expression: FROZEN_EXPRESSION },
          { name: "storage-version-changed", expression: STORAGE_CHANGED_EXPRESSION },
        ],
        failurePolicy: "Fail",
        sideEffects: "None",
        admissionReviewVersions: ["v1"],
        timeoutSeconds: 5,
      },
    ],
  });
  const service = { namespace: "ksvm-system", name: "ksvm-webhook", path: "/validate" };
  t.match(webhookConfigurationOf({ clientConfig: { service, caBundle: "LS0t" }, timeoutSeconds: 10 }), {
    webhooks: [{ clientConfig: { service, caBundle: "LS0t" }, timeoutSeconds: 10 }],
  });
  t.end();
});
