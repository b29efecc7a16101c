// The freeze rule is there three times: as the webhook's verdict, as its matchConditions and as a policy. All are held to the same cases.
import { pino } from "pino";
import t, { type Test } from "tap";
import { freezeVerdict, policySpec, WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { BINDINGS, type Crd, CRDS, POLICIES, storageVersion, WEBHOOK_CONFIGURATIONS } from "../../src/kube/objects.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { counted } from "../observability/counted.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import {
  dryRunFlip,
  FROZEN,
  flip,
  GUARD_CASES,
  type GuardCase,
  labelChange,
  type NewCrd,
  unfreeze,
  version,
  widgetCrd,
} from "./guard-cases.ts";

const cluster = await Cluster.start(t);
const { kube } = cluster.api;
const { signal } = new AbortController();
const GUARDED = widgetCrd("guarded.example.com");
const OTHER = widgetCrd("other.example.com");
const pathOf = ({ metadata }: NewCrd): string => `${CRDS}/${metadata.name}`;
const getCrd = (crd: NewCrd): Promise<Crd> => kube.get<Crd>(pathOf(crd), { signal });

for (const crd of [GUARDED, OTHER]) {
  await kube.create(CRDS, crd, { signal });
  const isEstablished = async (): Promise<boolean> =>
    ((await getCrd(crd)).status?.conditions ?? []).some(
      ({ status, type }) => type === "Established" && status === "True",
    );
  await eventually(isEstablished, `${crd.metadata.name} is established`);
}

/** Brings a CRD back to what it was, by updates that every guard allows, and annotates it. */
async function reset(crd: NewCrd, { annotations = {} }: Pick<GuardCase, "annotations"> = {}): Promise<void> {
  const { versions } = crd.spec;
  const patch = (body: object, subresource = ""): Promise<unknown> =>
    kube.patch(`${pathOf(crd)}${subresource}`, body, { signal });
  await patch({ metadata: { annotations: null, labels: null } });
  // A version cannot go while it is in storedVersions.
  await patch({ spec: { versions: [...versions, version("v3", false)] } });
  await patch({ status: { storedVersions: ["v1"] } }, "/status");
  await patch({ metadata: { annotations }, spec: { versions } });
}

/** @returns the refusal; `undefined` where the update went through */
async function update(crd: NewCrd, edit: GuardCase["update"]): Promise<ApiError | undefined> {
  const { body, contentType, method = "GET", query = "" } = edit((await getCrd(crd)) as never);
  const given = Object.fromEntries(new URLSearchParams(query));
  const type = contentType ?? (method === "PATCH" ? "application/merge-patch+json" : "application/json");
  try {
    await kube.request(method, pathOf(crd), { query: given, signal }, { body, contentType: type });
    return undefined;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}

/** What the rule in TypeScript says to a case. */
function expected(newStorage: string): string {
  const metadata = { name: GUARDED.metadata.name, annotations: FROZEN };
  const crd = (name: string): Crd => ({ metadata, spec: { versions: [{ name, storage: true }] } }) as never;
  return freezeVerdict(crd("v1"), crd(newStorage))?.message ?? "";
}

/** @param prefix what the API server puts before the words of the guard */
async function keepsTheContract(t: Test, prefix: string): Promise<void> {
  await reset(GUARDED, { annotations: FROZEN });
  const isInForce = async (): Promise<boolean> => (await update(GUARDED, dryRunFlip))?.said.startsWith(prefix) === true;
  await eventually(isInForce, "the guard is in force");
  for (const { asksFor = "v2", isDenied = false, name, update: edit, ...before } of GUARD_CASES) {
    await t.test(`${isDenied ? "denies" : "allows"}: ${name}`, async (t) => {
      await reset(GUARDED, before);
      const refusal = await update(GUARDED, edit);
      if (!isDenied) return void t.equal(refusal, undefined);
      t.equal(refusal?.said, `${prefix}${expected(asksFor)}`.slice(0, 2_000));
      t.match(refusal, { status: 403, reason: "Forbidden" });
      t.equal(storageVersion(await getCrd(GUARDED)), "v1", "nothing was stored");
    });
  }
  await reset(OTHER);
  t.equal(await update(OTHER, flip), undefined, "another CRD, which is not frozen, is left alone");
}

await t.test("the webhook", async (t) => {
  const { caBundle, certificate } = await issueServing();
  const metrics = new Metrics();
  const logger = pino({ level: "silent" });
  const server = await startWebhookServer({ host: "127.0.0.1", port: 0, certificate, metrics, logger, drainMs: 0 });
  t.teardown(() => server.close());
  const clientConfig = { url: `${server.url}${VALIDATE_PATH}`, caBundle };
  await kube.create(WEBHOOK_CONFIGURATIONS, webhookConfigurationOf({ clientConfig }), { signal });
  t.teardown(() => kube.delete(`${WEBHOOK_CONFIGURATIONS}/${WEBHOOK_NAME}`, { signal }));
  await keepsTheContract(t, `admission webhook "${WEBHOOK_NAME}" denied the request: `);
  const decisions = Object.keys(await counted(metrics.webhookReviews, "decision"));
  t.same(decisions, ["denied"], "the webhook is asked about nothing that it allows");

  await t.test("that is down blocks storage changes of frozen CRDs and nothing else", async (t) => {
    await server.close();
    await reset(GUARDED, { annotations: FROZEN });
    t.match(await update(GUARDED, flip), { status: 500, said: /failed calling webhook/ });
    t.equal(await update(GUARDED, labelChange), undefined);
    t.equal(await update(GUARDED, unfreeze), undefined, "the freeze can be lifted");
    t.equal(await update(GUARDED, flip), undefined);
  });
});

await t.test("the policy", async (t) => {
  const { name: crdName } = GUARDED.metadata;
  const metadata = { name: "guard-under-test" };
  const apiVersion = "admissionregistration.k8s.io/v1";
  const policy = { apiVersion, kind: "ValidatingAdmissionPolicy", metadata, spec: policySpec(crdName) };
  const spec = { policyName: metadata.name, validationActions: ["Deny"] };
  await reset(GUARDED, { annotations: FROZEN });
  await eventually(async () => (await update(GUARDED, dryRunFlip)) === undefined, "the webhook is gone");
  await kube.create(POLICIES, policy, { signal });
  await kube.create(BINDINGS, { apiVersion, kind: "ValidatingAdmissionPolicyBinding", metadata, spec }, { signal });
  t.teardown(async () => {
    await kube.delete(`${BINDINGS}/${metadata.name}`, { signal });
    await kube.delete(`${POLICIES}/${metadata.name}`, { signal });
  });
  const prefix =
    `customresourcedefinitions.apiextensions.k8s.io "${crdName}" is forbidden: ` +
    `ValidatingAdmissionPolicy '${metadata.name}' with binding '${metadata.name}' denied request: `;
  await keepsTheContract(t, prefix);
  await reset(OTHER, { annotations: FROZEN });
  t.equal(await update(OTHER, flip), undefined, "another CRD is left alone, frozen or not");
});
