import { setTimeout as sleep } from "node:timers/promises";
import pino from "pino";
import tap, { type Test } from "tap";
import { type CustomResourceDefinition, storageVersionOf } from "../../src/api/crd.ts";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { type GuardIdentity, isDenialBy } from "../../src/old/freeze/guard.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { VALIDATE_PATH } from "../../src/webhook/app.ts";
import { denialMessage } from "../../src/old/freeze/freeze-denial.ts";
import { freezePolicyOf } from "../../src/old/freeze/freeze-policy.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { attachShared } from "../control-plane/shared.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import {
  type CrdUpdate,
  dryRunFlip,
  FROZEN,
  flip,
  GUARD_CASES,
  type GuardCase,
  labelChange,
  type NewCrd,
  unfreeze,
  widgetCrd,
} from "./guard-cases.ts";

const CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ADMISSION = "/apis/admissionregistration.k8s.io/v1";
const GUARDED = widgetCrd("guarded.example.com");
const OTHER = widgetCrd("other.example.com");

/** A guard in force, and what only it can tell. */
interface Guard {
  readonly identity: GuardIdentity;
  /** What the API server puts before the guard's own words. */
  readonly prefix: string;
}

interface Answer {
  readonly status: number;
  readonly body: { readonly reason?: string; readonly message?: string };
}

const controlPlane = await attachShared("one");
tap.teardown(() => controlPlane.stop());
await Promise.all([GUARDED, OTHER].map((crd) => create(CRDS, crd)));
// The API server writes these by itself, once.
await Promise.all(
  [GUARDED, OTHER].map((crd) => eventually(`${crd.metadata.name} is established`, () => isEstablished(crd))),
);
const established = (await getCrd(GUARDED)).status?.conditions ?? [];

await tap.test("without a guard, every update of the contract goes through", async (t) => {
  for (const guardCase of GUARD_CASES) {
    t.equal((await run(guardCase)).status, 200, guardCase.name);
  }
});

await tap.test("the webhook", async (t) => {
  const verdicts = { allowed: 0, denied: 0 };
  const { caBundle, certificate } = await issueServing();
  const server = await startWebhookServer({
    host: "127.0.0.1",
    port: 0,
    certificate,
    metrics: new Metrics(),
    logger: pino({ level: "silent" }),
    drainMs: 0,
    onVerdict: ({ allowed }) => verdicts[allowed ? "allowed" : "denied"]++,
  });
  t.teardown(() => server.close());
  await create(
    `${ADMISSION}/validatingwebhookconfigurations`,
    webhookConfigurationOf({
      clientConfig: { url: `${server.url}${VALIDATE_PATH}`, caBundle },
    }),
  );
  t.teardown(async () => {
    await remove("validatingwebhookconfigurations", WEBHOOK_NAME);
    await reset(GUARDED, { annotations: FROZEN });
    await eventually("the webhook is gone", async () => (await update(GUARDED, dryRunFlip)).status === 200);
  });
  const guard: Guard = {
    identity: { kind: "webhook", name: WEBHOOK_NAME },
    prefix: `admission webhook "${WEBHOOK_NAME}" denied the request: `,
  };
  await waitUntilInForce(guard);

  const before = { ...verdicts };
  await keepsTheContract(t, guard);
  // More than once where the API server's cached copy was behind: it then reads the object and asks again.
  const denied = GUARD_CASES.filter(({ deniedBy }) => deniedBy !== undefined).length;
  t.ok(verdicts.denied - before.denied >= denied, "the webhook is asked about each denied update");
  t.equal(verdicts.allowed, 0, "the webhook is asked about nothing else");

  await t.test("stopped, it blocks storage changes of frozen CRDs and nothing else", async (t2) => {
    await server.close();
    await reset(GUARDED, { annotations: FROZEN });
    const blocked = await update(GUARDED, flip);
    t2.equal(blocked.status, 500);
    t2.equal(blocked.body.reason, "InternalError");
    t2.match(blocked.body.message, `failed calling webhook "${WEBHOOK_NAME}"`);
    t2.notOk(
      isDenialBy(guard.identity, GUARDED.metadata.name, blocked.body.message ?? ""),
      "and this proves no freeze",
    );
    t2.comment(JSON.stringify(blocked.body));
    t2.equal((await update(GUARDED, labelChange)).status, 200);
    await reset(OTHER);
    t2.equal((await update(OTHER, labelChange)).status, 200);
    t2.equal((await update(OTHER, flip)).status, 200);
    t2.equal((await update(GUARDED, unfreeze)).status, 200, "the glass can be broken");
    t2.equal((await update(GUARDED, flip)).status, 200);
  });
});

await tap.test("the policy", async (t) => {
  const { policy, binding } = freezePolicyOf(GUARDED.metadata.name);
  const { name } = policy.metadata;
  await create(`${ADMISSION}/validatingadmissionpolicies`, policy);
  await create(`${ADMISSION}/validatingadmissionpolicybindings`, binding);
  t.teardown(async () => {
    await remove("validatingadmissionpolicybindings", name);
    await remove("validatingadmissionpolicies", name);
  });
  const guard: Guard = {
    identity: { kind: "policy", name },
    prefix:
      `customresourcedefinitions.apiextensions.k8s.io "${GUARDED.metadata.name}" is forbidden: ` +
      `ValidatingAdmissionPolicy '${name}' with binding '${name}' denied request: `,
  };
  await waitUntilInForce(guard);

  await keepsTheContract(t, guard);

  await t.test("leaves other CRDs alone, frozen or not", async (t2) => {
    await reset(OTHER, { annotations: FROZEN });
    t2.equal((await update(OTHER, flip)).status, 200);
  });
});

async function keepsTheContract(t: Test, guard: Guard): Promise<void> {
  for (const guardCase of GUARD_CASES) {
    const { name, deniedBy, asksFor = "v2" } = guardCase;
    await t.test(`${deniedBy === undefined ? "allows" : "denies"}: ${name}`, async (t2) => {
      const { status, body } = await run(guardCase);
      if (deniedBy === undefined) {
        t2.equal(status, 200, body.message ?? "200");
        return;
      }
      const crdName = GUARDED.metadata.name;
      const message = denialMessage(deniedBy, { crdName, oldStorage: "v1", newStorage: asksFor });
      t2.match({ status, body }, { status: 403, body: { kind: "Status", reason: "Forbidden", code: 403 } });
      t2.equal(body.message, `${guard.prefix}${message}`);
      t2.ok(isDenialBy(guard.identity, crdName, body.message ?? ""), "the proof of the freeze knows it");
    });
  }
  await t.test("denies a storage change that is no dry-run", async (t2) => {
    await reset(GUARDED, { annotations: FROZEN });
    t2.equal((await update(GUARDED, flip)).status, 403);
    t2.equal(storageVersionOf(await getCrd(GUARDED)), "v1", "nothing was stored");
  });
  await t.test("allows: storage change of another CRD, not frozen", async (t2) => {
    await reset(OTHER);
    t2.equal((await update(OTHER, flip)).status, 200);
  });
}

/** Tries the update of a case on the CRD that is guarded, so that there is nothing to take back. */
async function run(guardCase: GuardCase): Promise<Answer> {
  await reset(GUARDED, guardCase);
  return await update(GUARDED, asDryRun(guardCase.update));
}

async function waitUntilInForce({ identity }: Guard): Promise<void> {
  await reset(GUARDED, { annotations: FROZEN });
  await eventually(`the ${identity.kind} denies`, async () => {
    const { status, body } = await update(GUARDED, dryRunFlip);
    return status !== 200 && isDenialBy(identity, GUARDED.metadata.name, body.message ?? "");
  });
}

/** Brings a CRD back to what it was when it was created, by updates that every guard allows, and marks it. */
async function reset(
  crd: NewCrd,
  { annotations = {}, conditions = [] }: Pick<GuardCase, "annotations" | "conditions"> = {},
): Promise<void> {
  const found = await getCrd(crd);
  if (storageVersionOf(found) !== "v1") await restoreVersions(crd);
  await mustPatch(crd, { metadata: { annotations: null, labels: null } });
  await mustPatch(crd, { metadata: { annotations } });
  const marks = conditions === null ? null : [...established, ...conditions];
  await mustPatch(crd, { status: { conditions: marks } }, "/status");
}

async function restoreVersions(crd: NewCrd): Promise<void> {
  const { versions } = crd.spec;
  await mustPatch(crd, { metadata: { annotations: null } });
  await mustPatch(crd, { status: { conditions: established } }, "/status");
  await mustPatch(crd, { spec: { versions } });
  await mustPatch(crd, { status: { storedVersions: ["v1"] } }, "/status");
}

async function mustPatch(crd: NewCrd, body: unknown, subresource = ""): Promise<void> {
  const path = `${CRDS}/${crd.metadata.name}${subresource}`;
  const answer = (await controlPlane.request(path, { method: "PATCH", body })) as Answer;
  if (answer.status !== 200) {
    throw new Error(`Cannot patch ${path}: ${answer.status} ${answer.body.message}`);
  }
}

async function update(crd: NewCrd, edit: (crd: CustomResourceDefinition) => CrdUpdate): Promise<Answer> {
  const { query = "", ...options } = edit(await getCrd(crd));
  return (await controlPlane.request(`${CRDS}/${crd.metadata.name}${query}`, options)) as Answer;
}

function asDryRun(edit: GuardCase["update"]): GuardCase["update"] {
  return (crd) => {
    const { query, ...options } = edit(crd);
    return { ...options, query: query === undefined ? "?dryRun=All" : `${query}&dryRun=All` };
  };
}

async function getCrd(crd: NewCrd): Promise<CustomResourceDefinition> {
  const { body } = await controlPlane.request(`${CRDS}/${crd.metadata.name}`);
  return body as CustomResourceDefinition;
}

async function isEstablished(crd: NewCrd): Promise<boolean> {
  const { conditions } = (await getCrd(crd)).status ?? {};
  return (conditions ?? []).some(({ type, status }) => type === "Established" && status === "True");
}

async function create(path: string, body: unknown): Promise<void> {
  const { status, body: answer } = await controlPlane.request(path, { method: "POST", body });
  if (status !== 201) {
    throw new Error(`Cannot create an object at ${path}: ${JSON.stringify(answer)}`);
  }
}

async function remove(resource: string, name: string): Promise<void> {
  await controlPlane.request(`${ADMISSION}/${resource}/${name}`, { method: "DELETE" });
}

async function eventually(what: string, isTrue: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 30_000;
  while (!(await isTrue())) {
    if (performance.now() > deadline) {
      throw new Error(`Waited too long until ${what}`);
    }
    await sleep(50);
  }
}
