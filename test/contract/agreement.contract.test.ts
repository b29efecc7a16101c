import * as fc from "fast-check";
import pino from "pino";
import tap from "tap";
import type { CrdVersion, CustomResourceDefinition } from "../crd.ts";
import { policyName } from "../../src/freeze/freeze.ts";
import { FREEZE_REASON, freezeVerdict, MIGRATING, policySpec, WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { Crd } from "../../src/kube/objects.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { CRDS, MERGE_PATCH, POLICIES, POLICY_BINDINGS, WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { TestKind, versionsOf } from "../integration/crd-fixture.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { counted } from "../observability/counted.ts";

/** CRDs, and updates that are tried on each as a dry-run: 360 cases for each of both guards. */
const CRD_COUNT = 12;
const UPDATE_COUNT = 30;

/** The same cases in every run; fast-check's shrinking has no use for a server that keeps its state. */
const SEED = 2855;

const cluster = await Cluster.start(tap);
const { api } = cluster;

const value = fc.constantFrom("", "true", "false", "x");
const annotations = fc.option(fc.record({ [MIGRATING]: value }), { nil: undefined });
const before = fc.record({
  annotations,
  versions: fc.shuffledSubarray(["v1alpha1", "v1", "v2"], { minLength: 2 }).filter((names) => names.includes("v1")),
});
const after = fc.record({
  annotations: fc.oneof(fc.constant("keep" as const), fc.constant("remove" as const), value),
  // The stored version has to stay, or the update is invalid whatever a guard says.
  versions: fc.shuffledSubarray(["v1alpha1", "v1", "v2", "v3"]).map((names) => [...new Set([...names, "v1"])]),
  storage: fc.nat(),
});

type Generated<A> = A extends fc.Arbitrary<infer T> ? T : never;

interface Case {
  readonly crd: CustomResourceDefinition;
  readonly body: { readonly metadata: object; readonly spec: { readonly versions: readonly unknown[] } };
  readonly isDenied: boolean;
}

function caseOf(crd: CustomResourceDefinition, { annotations, versions, storage }: Generated<typeof after>): Case {
  const change = annotations === "keep" ? {} : { [MIGRATING]: annotations === "remove" ? null : annotations };
  const body = {
    metadata: { annotations: change },
    spec: { versions: versionsOf({ versions, storage: versions[storage % versions.length] ?? "v1" }) },
  };
  const updated = { ...crd, spec: { ...crd.spec, versions: body.spec.versions as readonly CrdVersion[] } };
  return { crd, body, isDenied: freezeVerdict(crd as never, updated as unknown as Crd) !== undefined };
}

async function createCrd(index: number, { annotations, versions }: Generated<typeof before>) {
  const kind = new TestKind(`agree${index}`);
  await cluster.createCrd(kind, { versions, storage: "v1" });
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body: { metadata: { annotations: annotations ?? {} } } });
  return cluster.crd(kind);
}

const crds = await Promise.all(
  fc.sample(before, { numRuns: CRD_COUNT, seed: SEED }).map((traits, i) => createCrd(i, traits)),
);
const updates = fc.sample(after, { numRuns: CRD_COUNT * UPDATE_COUNT, seed: SEED });
const cases = updates.map((update, index) => caseOf(crds[index % CRD_COUNT] as CustomResourceDefinition, update));
const denials = cases.filter(({ isDenied }) => isDenied).length;

/** What the API server puts before the words of a guard. */
type Prefix = (crdName: string) => string;

const webhookPrefix: Prefix = () => `admission webhook "${WEBHOOK_NAME}" denied the request: `;
const policyPrefix: Prefix = (crdName) => {
  const name = policyName(crdName);
  const subject = `customresourcedefinitions.apiextensions.k8s.io "${crdName}" is forbidden: `;
  return `${subject}ValidatingAdmissionPolicy '${name}' with binding '${name}' denied request: `;
};

/** Whether the API server denies it by this guard. */
async function isDenied({ crd, body }: Case, prefix: Prefix): Promise<boolean> {
  const { name } = crd.metadata;
  try {
    await api.patch(CRDS, { name }, { type: MERGE_PATCH, body }, { dryRun: true });
    return false;
  } catch (error) {
    if (error instanceof ApiError && error.said.startsWith(`${prefix(name)}${FREEZE_REASON}:`)) return true;
    throw error;
  }
}

/** The cases in which the API server says something else than the rule, eight at a time. */
async function disagreements(prefix: Prefix): Promise<readonly Case[]> {
  const found: Case[] = [];
  const queue = cases.values();
  const worker = async (): Promise<void> => {
    for (const one of queue) {
      if ((await isDenied(one, prefix)) !== one.isDenied) found.push(one);
    }
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  return found;
}

/** Waits until the guard is in force on every CRD that is frozen. */
async function untilInForce(prefix: Prefix): Promise<void> {
  for (const crd of crds) {
    const denied = cases.find((one) => one.crd === crd && one.isDenied);
    if (denied !== undefined) {
      await eventually(() => isDenied(denied, prefix), `${crd.metadata.name} is guarded`);
    }
  }
}

await tap.test("the cases are a good mixture", (t) => {
  t.ok(denials > cases.length / 10 && denials < (cases.length * 9) / 10, `${denials} of ${cases.length} are denied`);
  t.end();
});

await tap.test("the webhook behind its matchConditions agrees with the rule", async (t) => {
  const { certificate, caBundle } = await issueServing();
  const metrics = new Metrics();
  const options = { host: "127.0.0.1", port: 0, certificate, metrics, logger: pino({ level: "silent" }), drainMs: 0 };
  const server = await startWebhookServer(options);
  t.teardown(() => server.close());
  const denied = async (): Promise<number> => (await counted(metrics.webhookReviews, "decision"))["denied"] ?? 0;
  const clientConfig = { url: `${server.url}${VALIDATE_PATH}`, caBundle };
  await api.create(WEBHOOK_CONFIGURATIONS, { ...webhookConfigurationOf({ clientConfig }) });
  t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME }));
  await untilInForce(webhookPrefix);
  const asked = await denied();
  t.same(await disagreements(webhookPrefix), []);
  t.equal((await denied()) - asked, denials, "matchConditions let exactly what is denied reach the webhook");
  t.same(
    Object.keys(await counted(metrics.webhookReviews, "decision")),
    ["denied"],
    "and the webhook denied all of it",
  );
  t.comment(`${cases.length} cases, ${denials} denied`);
});

await tap.test("the policy agrees with the rule", async (t) => {
  const apiVersion = "admissionregistration.k8s.io/v1";
  for (const crd of crds) {
    const metadata = { name: policyName(crd.metadata.name) };
    const spec = { policyName: metadata.name, validationActions: ["Deny"] };
    const policy = { apiVersion, kind: "ValidatingAdmissionPolicy", metadata, spec: policySpec(crd.metadata.name) };
    await api.create(POLICIES, policy);
    await api.create(POLICY_BINDINGS, { apiVersion, kind: "ValidatingAdmissionPolicyBinding", metadata, spec });
  }
  await untilInForce(policyPrefix);
  t.same(await disagreements(policyPrefix), []);
});
