// The rule is there three times: as the webhook's verdict, as matchConditions and as a policy. All are held to the same cases.
import t, { type Test } from "tap";
import {
  type FreezeMark,
  freezeVerdict,
  MATCH_CONDITIONS,
  policySpec,
  WEBHOOK_NAME,
} from "../../src/freeze/rule.ts";
import { ApiError } from "../../src/kube/errors.ts";
import {
  BINDINGS,
  type Crd,
  CRDS,
  POLICIES,
  storageVersion,
  WEBHOOK_CONFIGURATIONS,
} from "../../src/kube/objects.ts";
import {
  dryRunFlip,
  FROZEN,
  flip,
  GUARD_CASES,
  type GuardCase,
  labelChange,
  unfreeze,
  version,
  widgetCrd,
} from "../contract/guard-cases.ts";
import { serveWebhook } from "../integration/serve-webhook.ts";
import { Cluster, eventually, signal } from "./cluster.ts";

const cluster = await Cluster.start(t);
const { client } = cluster;
const GUARDED = widgetCrd("guarded.example.com");
const { name: crdName } = GUARDED.metadata;
const PATH = `${CRDS}/${crdName}`;
const getCrd = (): Promise<Crd> => client.get<Crd>(PATH, { signal });

await client.create(CRDS, GUARDED, { signal });
const isEstablished = async (): Promise<boolean> =>
  ((await getCrd()).status?.conditions ?? []).some(({ status, type }) => type === "Established" && status === "True");
await eventually(isEstablished, "the CRD is established");
const established = (await getCrd()).status?.conditions ?? [];

/** Brings the CRD back to what it was, by updates that every guard allows, and marks it. */
async function reset({
  annotations = {},
  conditions = [],
}: Pick<GuardCase, "annotations" | "conditions"> = {}): Promise<void> {
  const { versions } = GUARDED.spec;
  const patch = (body: object, subresource = ""): Promise<unknown> =>
    client.patch(`${PATH}${subresource}`, body, { signal });
  await patch({ metadata: { annotations: null, labels: null } });
  await patch({ status: { conditions: established } }, "/status");
  // A version cannot go while it is in storedVersions.
  await patch({ spec: { versions: [...versions, version("v3", false)] } });
  await patch({ status: { storedVersions: ["v1"] } }, "/status");
  await patch({ metadata: { annotations }, spec: { versions } });
  await patch({ status: { conditions: conditions === null ? null : [...established, ...conditions] } }, "/status");
}

/** @returns the refusal; `undefined` where the update went through */
async function update(edit: GuardCase["update"]): Promise<ApiError | undefined> {
  const { body, contentType, method = "GET", query = "" } = edit((await getCrd()) as never);
  const given = Object.fromEntries(new URLSearchParams(query));
  const type = contentType ?? (method === "PATCH" ? "application/merge-patch+json" : "application/json");
  try {
    await client.request(method, PATH, { query: given, signal }, { body, contentType: type });
    return undefined;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}

/** What the rule in TypeScript says to a case. */
function expected(mark: FreezeMark, newStorage: string): string {
  const conditions = mark === "condition" ? [{ type: "StorageMigrating", status: "True" }] : [];
  const annotations = mark === "annotation" ? FROZEN : {};
  const crd = (name: string): Crd =>
    ({
      metadata: { name: crdName, annotations },
      spec: { versions: [{ name, storage: true }] },
      status: { conditions },
    }) as never;
  return freezeVerdict(crd("v1"), crd(newStorage))?.message ?? "";
}

async function keepsTheContract(t: Test, prefix: string): Promise<void> {
  await reset({ annotations: FROZEN });
  await eventually(async () => (await update(dryRunFlip))?.said.startsWith(prefix) === true, "the guard is in force");
  for (const { asksFor = "v2", deniedBy, name, update: edit, ...marks } of GUARD_CASES) {
    await t.test(`${deniedBy === undefined ? "allows" : "denies"}: ${name}`, async (t) => {
      await reset(marks);
      const refusal = await update(edit);
      if (deniedBy === undefined) return void t.equal(refusal, undefined);
      t.equal(refusal?.said, `${prefix}${expected(deniedBy, asksFor)}`.slice(0, 2_000));
      t.match(refusal, { status: 403, reason: "Forbidden" });
      t.equal(storageVersion(await getCrd()), "v1");
    });
  }
}

await t.test("the webhook", async (t) => {
  let allowed = 0;
  const webhook = await serveWebhook(t, ({ request }: { request: { uid: string; object: Crd; oldObject: Crd } }) => {
    const denial = freezeVerdict(request.oldObject, request.object);
    if (denial === undefined) allowed++;
    const status = denial && { code: 403, reason: "Forbidden", message: denial.message };
    const response = { uid: request.uid, allowed: denial === undefined, ...(status === undefined ? {} : { status }) };
    return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
  });
  const rule = {
    apiGroups: ["apiextensions.k8s.io"],
    apiVersions: ["v1"],
    operations: ["UPDATE"],
    resources: ["customresourcedefinitions"],
  };
  const body = {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: WEBHOOK_NAME },
    webhooks: [
      {
        name: WEBHOOK_NAME,
        clientConfig: webhook.clientConfig,
        rules: [rule],
        matchConditions: MATCH_CONDITIONS,
        failurePolicy: "Fail",
        sideEffects: "None",
        admissionReviewVersions: ["v1"],
      },
    ],
  };
  await client.create(WEBHOOK_CONFIGURATIONS, body, { signal });
  t.teardown(() => client.delete(`${WEBHOOK_CONFIGURATIONS}/${WEBHOOK_NAME}`, { signal }));
  await keepsTheContract(t, `admission webhook "${WEBHOOK_NAME}" denied the request: `);
  t.equal(allowed, 0, "the webhook is asked about nothing that it allows");

  await t.test("that is down blocks storage changes of frozen CRDs and nothing else", async (t) => {
    webhook.setDown(true);
    await reset({ annotations: FROZEN });
    t.match(await update(flip), { status: 500, said: /failed calling webhook/ });
    t.equal(await update(labelChange), undefined);
    t.equal(await update(unfreeze), undefined, "the freeze can be lifted");
    t.equal(await update(flip), undefined);
  });
});

await t.test("the policy", async (t) => {
  const metadata = { name: "guard-under-test" };
  const apiVersion = "admissionregistration.k8s.io/v1";
  const policy = { apiVersion, kind: "ValidatingAdmissionPolicy", metadata, spec: policySpec(crdName) };
  const spec = { policyName: metadata.name, validationActions: ["Deny"] };
  await eventually(async () => (await update(dryRunFlip))?.status !== 500, "the webhook is gone");
  await client.create(POLICIES, policy, { signal });
  await client.create(BINDINGS, { apiVersion, kind: "ValidatingAdmissionPolicyBinding", metadata, spec }, { signal });
  t.teardown(async () => {
    await client.delete(`${BINDINGS}/${metadata.name}`, { signal });
    await client.delete(`${POLICIES}/${metadata.name}`, { signal });
  });
  const prefix =
    `customresourcedefinitions.apiextensions.k8s.io "${crdName}" is forbidden: ` +
    `ValidatingAdmissionPolicy '${metadata.name}' with binding '${metadata.name}' denied request: `;
  await keepsTheContract(t, prefix);
});
