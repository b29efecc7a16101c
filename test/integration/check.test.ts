// `ksvm check -f`: what a CRD file would do to a cluster, next to what the API server says and does. More of it, beside
// `migrate -f`, is in crd-files.test.ts.
import { stringify } from "yaml";
import t from "tap";
import { messageOf } from "../../src/errors.ts";
import type { CheckEntry } from "../../src/inventory/upgrade.ts";
import type { PlanEntry } from "../../src/inventory/plan.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CRDS } from "../../src/kube/objects.ts";
import { Cluster as Engine, eventually, signal } from "../engine/cluster.ts";
import { Cluster } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { type CrdShape, TestKind } from "./crd-fixture.ts";
import { grantUser } from "./grant-user.ts";
import { kubectlOf } from "./kubectl.ts";
import { listProblem, loseObjects, V1 } from "./lost-objects.ts";
import { parallel } from "./parallel.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);
const { client } = await Engine.connect(t, cluster.controlPlane);
const kubectl = await kubectlOf(cluster);

async function check(path: string): Promise<{ readonly code: number | null; readonly entry: CheckEntry }> {
  const { code, stderr, stdout } = await cluster.ksvm(["check", "-f", path, "-o", "json"]);
  const [entry] = stdout === "" ? [] : (JSON.parse(stdout) as { items: readonly CheckEntry[] }).items;
  if (entry === undefined) throw new Error(stderr);
  return { code, entry };
}

/** Applies a CRD for real, as `kubectl apply --server-side --force-conflicts`. @returns what the API server says */
function apply({ name }: TestKind, manifest: object, fieldManager = "kubectl"): Promise<string> {
  return client.apply(`${CRDS}/${name}`, manifest, { fieldManager, signal }).then(
    () => "accepted",
    (error: unknown) => (error instanceof ApiError ? error.said : messageOf(error)),
  );
}

parallel("check: a new CRD can be applied, and is", async (t) => {
  const kind = new TestKind("fresh");
  const path = fileOf(t, kind.manifest(V1));
  t.match(await check(path), { code: 0, entry: { verdict: "applicable", reason: "the cluster has no such CRD" } });
  t.equal(await client.find(`${CRDS}/${kind.name}`, { signal }), undefined, "the check creates nothing");
  t.equal(await apply(kind, kind.manifest(V1)), "accepted");
});

parallel("check: the API server refuses what needs a migration in the words that check shows", async (t) => {
  const kind = new TestKind("stored");
  await cluster.createStale(kind, 3);
  const path = fileOf(t, kind.manifest(V1));
  const { code, entry } = await check(path);
  const stored = { verdict: "needs-migration", objects: 3, removedVersions: ["v1alpha1"] };
  t.match(
    { code, entry },
    { code: 4, entry: { ...stored, apiServer: /(missing from|must appear in) spec\.versions/ } },
  );
  t.equal(await apply(kind, kind.manifest(V1)), entry.apiServer);
  t.equal((await cluster.migrate([kind.name])).code, 0);
  t.match(await check(path), {
    code: 0,
    entry: { reason: /storedVersions, written by ksvm-freeze, does not list/ },
  });
  t.equal(await apply(kind, kind.manifest(V1)), "accepted");
  t.same(await cluster.storedAs(kind), { v1: 3 });
});

parallel("check: what the API server refuses for another reason is refused in its words", async (t) => {
  const kind = new TestKind("scope");
  await cluster.createStale(kind, 1);
  const manifest = kind.manifest({ ...V1, versions: ["v1alpha1", "v1"], scope: "Cluster" });
  const { code, entry } = await check(fileOf(t, manifest));
  t.match({ code, entry }, { code: 5, entry: { verdict: "refused", apiServer: /field is immutable/ } });
  t.equal(await apply(kind, manifest), entry.apiServer);
  const both = await check(fileOf(t, kind.manifest({ ...V1, scope: "Cluster" })));
  t.match(both, { code: 5, entry: { reason: /field is immutable/, steps: [] } });
  const old = { ...manifest, apiVersion: "apiextensions.k8s.io/v1beta1" };
  t.match(await check(fileOf(t, old)), { code: 5, entry: { reason: /not served since Kubernetes 1\.22/ } });
});

parallel(
  "check and migrate -f: objects that no client can read are lost, and a file may bring them back",
  async (t) => {
    const kind = new TestKind("lost");
    await loseObjects(cluster, kind, 3);
    const path = fileOf(t, kind.manifest(V1));
    const { code, entry } = await check(path);
    t.match({ code, entry }, { code: 5, entry: { verdict: "data-loss", help: [/ksvm doctor .* --repair/, /./] } });
    t.match(await cluster.migrate(["-f", path, "--apply"]), { code: 5, stdout: `data-loss: ${entry.reason}` });
    const back = kind.manifest({ storage: "v1", unserved: ["v1alpha1"] });
    t.match(await check(fileOf(t, back)), { code: 0, entry: { notes: [/not known/, /^it brings v1alpha1 back/] } });
    t.equal((await cluster.migrate(["-f", fileOf(t, back), "--apply"])).code, 0);
    await eventually(async () => (await listProblem(cluster, kind)) === "", "the objects can be read");
    t.equal((await cluster.migrate(["-f", fileOf(t, kind.manifest(V1)), "--apply"])).code, 0);
    t.same(await cluster.storedAs(kind), { v1: 4 });
    await eventually(async () => (await listProblem(cluster, kind)) === "", "no object is lost");
  },
);

parallel("check reads a stream with many kinds from stdin, and its exit code is that of the worst", async (t) => {
  const [stale, fresh] = [new TestKind("pipe"), new TestKind("pipe")];
  await cluster.createStale(stale, 1);
  const stream = [{ kind: "Secret" }, fresh.manifest(V1), stale.manifest(V1), { kind: "Role" }];
  const args = ["check", "-f", "-", "--kubeconfig", cluster.kubeconfig];
  const input = stream.map((manifest) => stringify(manifest)).join("---\n");
  const { code, stdout, stderr } = await cluster.ksvm(args, { input });
  t.equal(stderr, "");
  t.equal(code, 4);
  const rows = `${fresh.name} +applicable .*\n${stale.name} +needs-migration +v1 +v1alpha1,v1 +v1alpha1 +1\n`;
  t.match(stdout, new RegExp(rows));
  t.match(stdout, /\n {2}API server: .*spec\.versions.*\n {2}1\. migrate: [^]*\n {2}2\. apply: [^]*ksvm migrate -f - /);
  t.match(stdout, /\n {2}note: managedFields of 1 of 1 .*\n\n2 objects of other kinds ignored\n$/);
});

parallel("check says what it does not know where the user may not send dry runs", async (t) => {
  const kind = new TestKind("rights");
  await cluster.createCrd(kind, V1);
  const rule = { apiGroups: ["apiextensions.k8s.io"], resources: ["customresourcedefinitions"], verbs: ["get"] };
  await grantUser(cluster.api, "reader", [rule]);
  const kubeconfig = ["--kubeconfig", cluster.controlPlane.kubeconfigFor("reader")];
  const args = ["check", "-f", fileOf(t, kind.manifest(V1)), ...kubeconfig];
  await eventually(async () => (await cluster.ksvm(args)).stdout !== "", "the role is known");
  const said = /unknown.*\n\n.*: this user may not send a dry run.*\n {2}API server: .*cannot patch/;
  t.match(await cluster.ksvm(args), { code: 1, stdout: said });
});

const BOTH: CrdShape = { versions: ["v1alpha1", "v1"], storage: "v1" };
const NONE = { strategy: "None" };

for (const args of [[], ["--server-side"]]) {
  const how = `kubectl apply ${args.join(" ")}`.trim();
  parallel(`check and migrate -f: a file of the client that wrote the webhook takes it away (${how})`, async (t) => {
    const kind = new TestKind("none");
    const conversion = conversionBy(await serveConversion(t));
    for (const [storage, prefix] of [
      ["v1alpha1", "old"],
      ["v1", "new"],
    ] as const) {
      const applied = await kubectl(["apply", ...args, "-f", "-"], kind.manifest({ ...BOTH, storage, conversion }));
      t.equal(applied.code, 0, applied.stderr);
      await cluster.waitForVersion(kind, storage);
      await cluster.createObjects(kind.resource(storage), kind.objects(2, storage, prefix));
    }
    const manifest = kind.manifest({ ...BOTH, conversion: NONE });
    t.match(await apply(kind, manifest, "stranger"), /spec\.conversion\.webhook/, "negative control");
    const path = fileOf(t, manifest);
    t.match(await check(path), { code: 4, entry: { verdict: "needs-migration" } });
    const run = await cluster.migrate(["-f", path]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.same(await cluster.storedAs(kind), { v1: 4 });
    t.equal((await check(path)).code, 0);
    const applied = await kubectl(["apply", ...args, "-f", "-"], manifest);
    t.equal(applied.code, 0, applied.stderr);
    t.same((await cluster.crd(kind)).spec.conversion, NONE);
  });
}

parallel("check and migrate -f --apply: a file takes the place of what other clients own", async (t) => {
  const kind = new TestKind("injected");
  const { clientConfig, ...rest } = await serveConversion(t);
  const { caBundle, url } = clientConfig;
  const conversion = conversionBy({ ...rest, clientConfig: { url } as typeof clientConfig });
  t.equal((await kubectl(["apply", "--server-side", "-f", "-"], kind.manifest({ ...BOTH, conversion }))).code, 0);
  const body = { spec: { conversion: { webhook: { clientConfig: { caBundle } } } } };
  await client.patch(`${CRDS}/${kind.name}`, body, { fieldManager: "cert-manager-cainjector", signal });
  await cluster.waitForVersion(kind, "v1");
  const manifest = kind.manifest({ ...BOTH, conversion: NONE });
  const path = fileOf(t, manifest);
  t.match(await apply(kind, manifest), /spec\.conversion\.webhook/, "negative control: its own client is refused");
  t.match(await check(path), { code: 0, entry: { verdict: "applicable" } });
  const run = await cluster.migrate(["-f", path, "--apply"]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.same((await cluster.crd(kind)).spec.conversion, NONE);
});

parallel("check: a webhook that a file brings has to be started before, and it is said", async (t) => {
  const kind = new TestKind("brought");
  await cluster.createStale(kind, 2);
  const notes = async (path: string) => (await cluster.ksvm(["check", "-f", path])).stdout;
  t.notMatch(await notes(fileOf(t, kind.manifest(BOTH))), /webhook/, "negative control: without one");
  const service = { namespace: "default", name: "nobody", path: "/", port: 443 };
  const webhook = { conversionReviewVersions: ["v1"], clientConfig: { service } };
  const brought = fileOf(t, kind.manifest({ ...BOTH, conversion: { strategy: "Webhook", webhook } }));
  t.match(
    await notes(brought),
    /note: it brings the conversion webhook \(Service default\/nobody\): .*start it before/,
  );
  const applied = await kubectl(["apply", "--server-side", "--force-conflicts", "-f", brought]);
  t.equal(applied.code, 0, applied.stderr);
  t.notMatch(await notes(brought), /it brings/, "once the CRD calls it");
});

parallel("plan names a conversion webhook that cannot be called", async (t) => {
  const webhook = await serveConversion(t);
  const conversion = conversionBy(webhook);
  const stale = new TestKind("needs");
  await cluster.createStale(stale, 3, { conversion });
  const planOf = async ({ name }: TestKind) => {
    const { stdout } = await cluster.ksvm(["plan", name, "-o", "json"]);
    return (JSON.parse(stdout) as { items: PlanEntry[] }).items[0];
  };
  await eventually(async () => (await planOf(stale))?.objects === 3, "the objects are counted");
  t.equal((await planOf(stale))?.note, undefined, "negative control: it is up");
  webhook.setDown(true);
  t.match(await planOf(stale), { action: "migrate", note: /conversion webhook for .* failed: Post / });
  t.match((await cluster.ksvm(["plan", stale.name])).stdout, /conversion webhook.*127\.0\.0\.1/);
  t.same(await cluster.storedAs(stale), { v1alpha1: 3 });
});
