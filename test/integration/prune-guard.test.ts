import t from "tap";
import { type CustomResourceDefinition, storedVersionsOf } from "../../src/api/crd.ts";
import { ALLOW_PRUNE_ANNOTATION } from "../../src/api/names.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CRDS, MERGE_PATCH, MUTATING_POLICY_BINDINGS, POLICIES, POLICY_BINDINGS } from "../../src/kube/resources.ts";
import { PRUNE_POLICY_NAMES } from "../../src/prune-guard/prune-policies.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { installCrds } from "./install-crds.ts";
import { kubectlOf } from "./kubectl.ts";
import { startTrigger } from "./trigger-harness.ts";

const cluster = await Cluster.start(t, { users: [{ name: "capi-manager", groups: ["system:masters"] }] });
const kubectl = await kubectlOf(cluster);
/** A member of system:masters with another name: what a tool is that the administrator lists. */
const tool = cluster.clientFor("capi-manager");
t.teardown(() => tool.transport.close());

/** What cluster-api and cmctl send: the status with the storage version alone. */
function prune(kind: TestKind, options: { api?: ApiClient; dryRun?: boolean } = {}): Promise<CustomResourceDefinition> {
  const { api = cluster.api, dryRun = false } = options;
  const patch = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1"] } } };
  return api.patch(CRDS, kind, patch, { subresource: "status", dryRun });
}

/** `undefined` where the prune is taken. */
async function denialOf(kind: TestKind, api?: ApiClient): Promise<string | undefined> {
  try {
    await prune(kind, { dryRun: true, ...(api === undefined ? {} : { api }) });
    return undefined;
  } catch (error) {
    if (error instanceof ApiError) return error.message;
    throw error;
  }
}

function isOfAnInvalidVersion(error: unknown): boolean {
  return error instanceof ApiError && error.message.includes("request to convert CR from an invalid group/version");
}

async function enable(kind: TestKind, ...flags: readonly string[]): Promise<void> {
  const { code, stderr } = await cluster.ksvm(["guard", "enable", ...flags]);
  if (code !== 0) throw new Error(stderr);
  const isDenied = flags.includes("deny");
  await eventually(async () => ((await denialOf(kind)) !== undefined) === isDenied, "the guard is in its mode");
}

async function stale(word: string): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createStale(kind, 3);
  return kind;
}

await t.test("without the guard a prune by another tool loses the objects", async (t) => {
  const kind = await stale("lost");
  await prune(kind);
  await cluster.setVersions(kind, { storage: "v1", versions: ["v1"] });
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });
  const read = (): Promise<unknown> => cluster.api.get(kind.resource("v1"), { name: "w0", namespace: "default" });
  // The handler of the CRD lags behind the CRD (kubernetes#130235): it reads v1alpha1 until it has the new versions.
  const isLost = (): Promise<boolean> => read().then(() => false, isOfAnInvalidVersion);
  await eventually(isLost, "the objects cannot be read");
});

await t.test(
  "by default a prune by another tool passes with a warning that names the versions and the command",
  async (t) => {
    const kind = await stale("warned");
    t.equal((await cluster.ksvm(["guard", "status"])).code, 1, "it is off at first");
    await enable(kind);
    const args = [
      "patch",
      "crd",
      kind.name,
      "--subresource=status",
      "--type=merge",
      "-p",
      '{"status":{"storedVersions":["v1"]}}',
    ];
    let warned = "";
    await eventually(async () => {
      warned = (await kubectl([...args, "--dry-run=server"])).stderr;
      return warned.includes("Warning");
    }, "the policy is in force");
    const { code, stderr } = await kubectl(args);
    t.equal(code, 0);
    t.match(stderr, `would lose "v1alpha1"`);
    t.match(stderr, `ksvm migrate ${kind.name}`);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    const { code: statusCode, stdout } = await cluster.ksvm(["guard", "status"]);
    t.equal(statusCode, 0);
    t.match(stdout, /^warn: /);
  },
);

await t.test("with --mode=deny a prune by another tool is denied, and one by ksvm is not", async (t) => {
  const kind = await stale("denied");
  await enable(kind, "--mode", "deny");
  await t.rejects(prune(kind), { message: new RegExp(`would lose "v1alpha1".*ksvm migrate ${kind.name}`) });
  const edit = await kubectl(["replace", "--subresource=status", "-f", "-"], await prunedManifest(kind));
  t.equal(edit.code, 1, "kubectl edit --subresource=status sends the same");
  t.match(edit.stderr, /would lose "v1alpha1"/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  const { code } = await cluster.migrate([kind.name]);
  t.equal(code, 0);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.same(await cluster.storedAs(kind), { v1: 3 });
});

async function allow(kind: TestKind, value: string): Promise<void> {
  const { code, stderr } = await kubectl([
    "annotate",
    "--overwrite",
    "crd",
    kind.name,
    `${ALLOW_PRUNE_ANNOTATION}=${value}`,
  ]);
  if (code !== 0) throw new Error(stderr);
}

async function prunedManifest(kind: TestKind): Promise<object> {
  const crd = await cluster.crd(kind);
  return { ...crd, status: { ...crd.status, storedVersions: ["v1"] } };
}

await t.test(
  "who is denied can allow it once with the command of the message, for this generation alone",
  async (t) => {
    const kind = await stale("allowed");
    await enable(kind, "--mode", "deny");
    const [, command = ""] = /"(kubectl annotate [^"]*)"/.exec((await denialOf(kind)) ?? "") ?? [];
    const { generation = 0 } = (await cluster.crd(kind)).metadata;
    t.match(command, `${ALLOW_PRUNE_ANNOTATION}=v1alpha1@${generation}`);
    t.equal((await kubectl(command.split(" ").slice(1))).code, 0);
    t.equal(await denialOf(kind), undefined);
    await cluster.setVersions(kind, { storage: "v1", versions: ["v1alpha1", "v1beta1", "v1"] });
    t.match(await denialOf(kind), /would lose/, "another generation, another decision");
    await allow(kind, `v1beta1@${generation + 1}`);
    t.match(await denialOf(kind), /would lose/, "another version");
    await allow(kind, `v1alpha1,v1beta1@${generation + 1}`);
    t.match((await cluster.ksvm(["guard", "status"])).stdout, new RegExp(`${kind.name} +v1alpha1,v1beta1@\\d+ +valid`));
    await prune(kind);
    t.match((await cluster.ksvm(["guard", "status"])).stdout, new RegExp(`${kind.name} +v1alpha1,v1beta1@\\d+ +spent`));
    t.match(
      (await cluster.ksvm(["guard", "enable", "--mode", "deny"])).stdout,
      `${kind.name} no longer allows a prune`,
    );
    t.notOk((await cluster.crd(kind)).metadata.annotations?.[ALLOW_PRUNE_ANNOTATION]);
  },
);

await t.test(
  "the trigger takes the annotation off once it has been used, and leaves one that can still be",
  async (t) => {
    await installCrds(cluster);
    startTrigger(t, cluster);
    const [used, kept] = [await stale("used"), await stale("kept")];
    await enable(used, "--mode", "deny");
    for (const kind of [used, kept]) {
      const { generation } = (await cluster.crd(kind)).metadata;
      await allow(kind, `v1alpha1@${generation}`);
    }
    await prune(used);
    const allowanceOf = async (kind: TestKind): Promise<string | undefined> =>
      (await cluster.crd(kind)).metadata.annotations?.[ALLOW_PRUNE_ANNOTATION];
    await eventually(async () => (await allowanceOf(used)) === undefined, "the annotation is taken off");
    t.ok(await allowanceOf(kept));
  },
);

await t.test("a tool of the administrator's list may prune; others may not", async (t) => {
  const kind = await stale("listed");
  await enable(kind, "--mode", "deny");
  t.match(await denialOf(kind, tool), /would lose/);
  await enable(kind, "--mode", "deny", "--allow-user", "capi-manager");
  await eventually(async () => (await denialOf(kind, tool)) === undefined, "the list is in force");
  t.match(await denialOf(kind), /would lose/);
  t.match((await cluster.ksvm(["guard", "status"])).stdout, /allowed: capi-manager/);
});

await t.test("other updates of a status are not touched", async (t) => {
  const kind = await stale("other");
  await enable(kind, "--mode", "deny");
  const condition = {
    type: "Mine",
    status: "True",
    reason: "Test",
    message: "",
    lastTransitionTime: new Date().toISOString(),
  };
  const conditions = [...((await cluster.crd(kind)).status?.conditions ?? []), condition];
  const patch = { type: MERGE_PATCH, body: { status: { conditions, storedVersions: ["v1alpha1", "v1", "v1beta1"] } } };
  await cluster.setVersions(kind, { storage: "v1", versions: ["v1alpha1", "v1beta1", "v1"] });
  await t.resolves(cluster.api.patch(CRDS, kind, patch, { subresource: "status" }));
});

await t.test("status tells a guard that was changed; enable puts it right, disable takes all of it away", async (t) => {
  const kind = await stale("changed");
  await enable(kind, "--mode", "deny");
  const patch = { type: MERGE_PATCH, body: { spec: { failurePolicy: "Ignore" } } };
  await cluster.api.patch(POLICIES, { name: PRUNE_POLICY_NAMES.unproven }, patch);
  const changed = await cluster.ksvm(["guard", "status", "-o", "json"]);
  t.equal(changed.code, 1);
  t.match(JSON.parse(changed.stdout), {
    state: "changed",
    objects: [`validatingadmissionpolicies/${PRUNE_POLICY_NAMES.unproven}`],
  });
  await enable(kind, "--mode", "deny");
  t.equal((await cluster.ksvm(["guard", "status"])).code, 0);
  t.equal((await cluster.ksvm(["guard", "disable"])).code, 0);
  t.match((await cluster.ksvm(["guard", "status"])).stdout, /^off: /);
  await eventually(async () => (await denialOf(kind)) === undefined, "nothing is denied");
  t.match((await cluster.ksvm(["guard", "disable"])).stdout, "nothing to do");
});

await t.test("enable puts in force what an installation with kubectl owns in another mode", async (t) => {
  const kind = await stale("installed");
  const manifest = new URL("../../deploy/base/stored-versions-guard.yaml", import.meta.url).pathname;
  const { code, stderr } = await kubectl(["apply", "--server-side", "-f", manifest]);
  t.equal(code, 0, stderr);
  await enable(kind, "--mode", "deny");
  t.match((await cluster.ksvm(["guard", "status"])).stdout, /^deny: /);
  await enable(kind, "--mode", "warn");
  t.match((await cluster.ksvm(["guard", "status"])).stdout, /^warn: /);
});

const EVERY_STATUS = {
  apiGroups: ["apiextensions.k8s.io"],
  apiVersions: ["v1"],
  operations: ["*"],
  resources: ["customresourcedefinitions/status"],
};
const BINDING = { resource: POLICY_BINDINGS, name: PRUNE_POLICY_NAMES.unproven };
const POLICY = { resource: POLICIES, name: PRUNE_POLICY_NAMES.unproven };
const exemptions: readonly [what: string, of: typeof POLICY, spec: object][] = [
  ["a rule of its binding", BINDING, { matchResources: { excludeResourceRules: [EVERY_STATUS] } }],
  ["a rule of the policy", POLICY, { matchConstraints: { excludeResourceRules: [EVERY_STATUS] } }],
  ["a selector of its binding", BINDING, { matchResources: { objectSelector: { matchLabels: { guarded: "yes" } } } }],
];

for (const [index, [what, { resource, name }, spec]] of exemptions.entries()) {
  await t.test(`status tells where ${what} exempts CRDs from the guard, and enable takes it out`, async (t) => {
    const kind = await stale(`exempt${index}`);
    await enable(kind, "--mode", "deny", "--allow-user", "capi-manager");
    await cluster.api.patch(resource, { name }, { type: MERGE_PATCH, body: { spec } });
    await eventually(async () => (await denialOf(kind)) === undefined, "the CRD is exempt");
    const { code, stdout } = await cluster.ksvm(["guard", "status"]);
    t.equal(code, 1);
    t.match(stdout, /^changed: /);
    t.match(stdout, `ksvm guard enable --mode=deny --allow-user=capi-manager puts it right`);
    await enable(kind, "--mode", "deny", "--allow-user", "capi-manager");
    t.match((await cluster.ksvm(["guard", "status"])).stdout, /^deny: /);
  });
}

await t.test("status says that the guard is changed, not off, where what puts versions back is missing", async (t) => {
  const kind = await stale("restoring");
  await enable(kind, "--mode", "deny");
  await cluster.api.delete(MUTATING_POLICY_BINDINGS, { name: PRUNE_POLICY_NAMES.restore });
  t.match((await cluster.ksvm(["guard", "status"])).stdout, /^changed: .*--mode=deny/);
  t.match(await denialOf(kind), /would lose/);
  t.equal((await cluster.ksvm(["guard", "disable"])).code, 0);
});

await t.test("a policy of that name that another client wrote is left alone", async (t) => {
  const name = PRUNE_POLICY_NAMES.unproven;
  const rule = { apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["UPDATE"] };
  const spec = { matchConstraints: { resourceRules: [rule] }, validations: [{ expression: "true" }] };
  const apiVersion = "admissionregistration.k8s.io/v1";
  await cluster.api.create(POLICIES, { apiVersion, kind: "ValidatingAdmissionPolicy", metadata: { name }, spec });
  const { code, stderr } = await cluster.ksvm(["guard", "enable"]);
  t.equal(code, 1);
  t.match(stderr, /Cannot change the guard: validatingadmissionpolicies\/ksvm-stored-versions exists/);
  await cluster.api.delete(POLICIES, { name });
});
