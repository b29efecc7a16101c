// `ksvm check -f` and `plan`: what a CRD file would do to a cluster, next to what the API server says and does.
import { stringify } from "yaml";
import t from "tap";
import type { ApiError } from "../../src/old/kube/errors.ts";
import { APPLY_PATCH, CRDS, MERGE_PATCH } from "../../src/old/kube/resources.ts";
import type { CheckEntry } from "../../src/plan/check-types.ts";
import type { CountedEntry } from "../../src/plan/inventory.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { Cluster, eventually } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { type CrdShape, TestKind } from "./crd-fixture.ts";
import { grantUser } from "./grant-user.ts";
import { kubectlOf } from "./kubectl.ts";
import { createInV1, IN_TREE, leaveFailedInTree, listProblem, loseObjects, pruneByHand, V1 } from "./lost-objects.ts";
import { parallel } from "./parallel.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const kubectl = await kubectlOf(cluster);

async function check(path: string): Promise<{ readonly code: number | null; readonly entry: CheckEntry }> {
  const { code, stderr, stdout } = await cluster.ksvm(["check", "-f", path, "-o", "json"]);
  const [entry] = stdout === "" ? [] : (JSON.parse(stdout) as { items: readonly CheckEntry[] }).items;
  if (entry === undefined) throw new Error(stderr);
  return { code, entry };
}

/** Applies a CRD for real, as `kubectl apply --server-side --force-conflicts`. */
function apply(kind: TestKind, manifest: object, fieldManager = "kubectl"): Promise<unknown> {
  const options = { fieldManager, force: true };
  return api.patch(CRDS, { name: kind.name }, { type: APPLY_PATCH, body: manifest }, options);
}

async function refusalOf(kind: TestKind, manifest: object, fieldManager?: string): Promise<string> {
  try {
    await apply(kind, manifest, fieldManager);
    return "accepted";
  } catch (error) {
    return (error as ApiError).said;
  }
}

parallel("check: a new CRD can be applied, and is", async (t) => {
  const kind = new TestKind("fresh");
  const path = fileOf(t, kind.manifest(V1));
  t.match(await check(path), { code: 0, entry: { verdict: "applicable", reason: "the cluster has no such CRD" } });
  t.equal(await api.find(CRDS, kind), undefined, "the check creates nothing");
  await apply(kind, kind.manifest(V1));
});

parallel("check: a file that drops a stored version needs a migration, and can be applied after it", async (t) => {
  const kind = new TestKind("stored");
  await cluster.createStale(kind, 3);
  const path = fileOf(t, kind.manifest(V1));
  const before = await cluster.crd(kind);
  const { code, entry } = await check(path);
  t.equal(code, 4);
  t.match(entry, {
    verdict: "needs-migration",
    objects: 3,
    removedVersions: ["v1alpha1"],
    estimate: { requests: 4 },
    steps: [new RegExp(`ksvm migrate ${kind.name}$`), "apply this file"],
    notes: [/^managedFields of 3 of 3 objects name v1alpha1/],
  });
  t.same(await cluster.crd(kind), before, "the check changes nothing");
  t.equal(await refusalOf(kind, kind.manifest(V1)), entry.apiServer, "the API server refuses it in the same words");
  t.match(entry.apiServer, /(missing from|must appear in) spec\.versions/);
  t.equal((await cluster.migrate([kind.name])).code, 0);
  t.match(await check(path), {
    code: 0,
    entry: { verdict: "applicable", notes: [/\(ksvm[^ ]* wrote it last/] },
  });
  await apply(kind, kind.manifest(V1));
  t.same(await cluster.storedAs(kind), { v1: 3 });
  await eventually(async () => (await listProblem(cluster, kind)) === "", "the objects can be read");
});

parallel("check: a new storage version and the end of the old one takes the two steps that it names", async (t) => {
  const kind = new TestKind("flip");
  await cluster.createCrd(kind, { versions: ["v1alpha1"], storage: "v1alpha1" });
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(3, "v1alpha1"));
  const path = fileOf(t, kind.manifest(V1));
  const { code, entry } = await check(path);
  t.match(
    { code, entry },
    { code: 4, entry: { verdict: "two-steps", notes: ["a dry run of the first step was accepted"] } },
  );
  t.equal(await refusalOf(kind, kind.manifest(V1)), entry.apiServer, "the API server refuses it in the same words");
  await apply(kind, kind.manifest({ versions: ["v1", "v1alpha1"], storage: "v1" }));
  t.match(await check(path), { code: 4, entry: { verdict: "needs-migration" } });
  t.equal((await cluster.migrate([kind.name])).code, 0);
  t.equal((await check(path)).code, 0);
  await apply(kind, kind.manifest(V1));
  t.same(await cluster.storedAs(kind), { v1: 3 });
  await eventually(async () => (await listProblem(cluster, kind)) === "", "the objects can be read");
});

parallel("check: what the API server refuses for another reason is refused in its words", async (t) => {
  const kind = new TestKind("scope");
  await cluster.createStale(kind, 1);
  const manifest = kind.manifest({ ...V1, versions: ["v1alpha1", "v1"], scope: "Cluster" });
  const { code, entry } = await check(fileOf(t, manifest));
  t.match({ code, entry }, { code: 5, entry: { verdict: "refused", apiServer: /field is immutable/ } });
  t.equal(await refusalOf(kind, manifest), entry.apiServer);
  const both = kind.manifest({ ...V1, scope: "Cluster" });
  t.match(await check(fileOf(t, both)), { code: 5, entry: { verdict: "refused", reason: /not only for v1alpha1/ } });
  const old = { ...manifest, apiVersion: "apiextensions.k8s.io/v1beta1" };
  t.match(await check(fileOf(t, old)), { code: 5, entry: { reason: /not served since Kubernetes 1\.22/ } });
});

parallel(
  "check: objects in a version that was dropped after a prune by hand are lost, and the steps bring them back",
  async (t) => {
    const kind = new TestKind("lost");
    await cluster.createStale(kind, 3);
    // The first one of a list can be read.
    await createInV1(cluster, kind);
    await pruneByHand(cluster, kind);
    const path = fileOf(t, kind.manifest(V1));
    const before = await check(path);
    t.match(before, {
      code: 0,
      entry: { notes: [/rests on storedVersions alone \(kubectl-patch wrote it last, .*ksvm migrate --force/] },
    });
    const forced = await cluster.migrate([kind.name, "--force"]);
    t.equal(forced.code, 0, "what it advises repairs the objects");
    t.same(await cluster.storedAs(kind), { v1: 4 });

    const lost = new TestKind("lost");
    await loseObjects(cluster, lost, 3);
    const file = fileOf(t, lost.manifest(V1));
    const { code, entry } = await check(file);
    t.match({ code, entry }, { code: 5, entry: { verdict: "data-loss", reason: /stored in v1alpha1/ } });
    await apply(lost, lost.manifest(V1));
    t.match(
      await listProblem(cluster, lost),
      /invalid group\/version/,
      "the API server takes the file, and the objects stay lost",
    );
    t.same(await cluster.storedAs(lost), { v1: 1, v1alpha1: 3 });

    const repaired = lost.manifest({ storage: "v1", unserved: ["v1alpha1"] });
    t.match(await check(fileOf(t, repaired)), { code: 0, entry: { notes: [/^it brings v1alpha1 back/] } });
    await apply(lost, repaired);
    await eventually(async () => (await listProblem(cluster, lost)) === "", "the objects can be read");
    t.equal((await cluster.migrate([lost.name, "--force"])).code, 0);
    t.same(await cluster.storedAs(lost), { v1: 4 });
    t.equal((await check(file)).code, 0);
    await apply(lost, lost.manifest(V1));
    await eventually(async () => (await listProblem(cluster, lost)) === "", "no object is lost");
  },
);

parallel(
  "check: a version that Kubernetes' own migrator took out after it failed may be lost",
  async (t) => {
    const kind = new TestKind("intree");
    await cluster.createStale(kind, 2);
    // What its controller leaves behind: a failed migration, and storedVersions without the version.
    await leaveFailedInTree(t, cluster, kind);
    await pruneByHand(cluster, kind);
    const path = fileOf(t, kind.manifest(V1));
    t.match(await check(path), {
      code: 5,
      entry: { verdict: "data-loss", reason: new RegExp(`failed \\(${kind.plural}\\)`) },
    });
    t.same(await cluster.storedAs(kind), { v1alpha1: 2 }, "applying the file would lose both");
    const run = await cluster.migrate([kind.name, "--force"]);
    t.equal(run.code, 0, run.stderr);
    t.same(await cluster.storedAs(kind), { v1: 2 });
    await api.delete(IN_TREE, { name: kind.plural });
    t.equal((await check(path)).code, 0);
    const again = await cluster.migrate([kind.name]);
    t.match(again, { code: 0, stdout: /nothing to do/ }, "negative control: no failed migration");
    await apply(kind, kind.manifest(V1));
    t.same(await cluster.storedAs(kind), { v1: 2 });
  },
  unlessAtLeast(37, "the in-tree migrator is on by default"),
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
  t.match(
    stdout,
    new RegExp(
      `${fresh.name} +applicable .*\n${stale.name} +needs-migration +v1 +v1alpha1,v1 +v1alpha1 +1 +2 +~101s\n`,
    ),
  );
  t.match(
    stdout,
    /\n {2}API server: .*spec\.versions.*\n {2}1\. migrate .*\n {2}2\. apply this file\n {2}note: managedFields of 1 of 1 .*\n\n2 objects of other kinds ignored\n$/,
  );
});

parallel("check says what it does not know where the user may not send dry runs", async (t) => {
  const kind = new TestKind("rights");
  await cluster.createCrd(kind, V1);
  const rule = { apiGroups: ["apiextensions.k8s.io"], resources: ["customresourcedefinitions"], verbs: ["get"] };
  await grantUser(api, "reader", [rule]);
  const args = [
    "check",
    "-f",
    fileOf(t, kind.manifest(V1)),
    "--kubeconfig",
    cluster.controlPlane.kubeconfigFor("reader"),
  ];
  await eventually(async () => (await cluster.ksvm(args)).stdout !== "", "the role is known");
  t.match(await cluster.ksvm(args), {
    code: 1,
    stdout: /unknown.*\n\n.*: this user may not send a dry run.*\n {2}API server: .*cannot patch/,
  });
});

const BOTH: CrdShape = { versions: ["v1alpha1", "v1"], storage: "v1" };
const NONE = { strategy: "None" };

// An apply by another client than that of the CRD cannot take spec.conversion away; what its own may depends on how it applies.
for (const args of [[], ["--server-side"]]) {
  const how = `kubectl apply ${args.join(" ")}`.trim();
  parallel(
    `check and migrate -f: a file that says strategy None, of the client that wrote the webhook (${how})`,
    async (t) => {
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
      t.match(await refusalOf(kind, manifest, "stranger"), /spec\.conversion\.webhook/, "negative control");
      const path = fileOf(t, manifest);
      t.match(await check(path), { code: 4, entry: { verdict: "needs-migration" } });
      const run = await cluster.migrate(["-f", path]);
      t.equal(run.code, 0, run.stdout + run.stderr);
      t.same(await cluster.storedAs(kind), { v1: 4 });
      t.equal((await check(path)).code, 0);
      const applied = await kubectl(["apply", ...args, "-f", "-"], manifest);
      t.equal(applied.code, 0, applied.stderr);
      t.same((await cluster.crd(kind)).spec.conversion, NONE);
    },
  );
}

parallel(
  "check: a file that leaves out what another client owns is refused, and migrate -f --apply writes it",
  async (t) => {
    const kind = new TestKind("injected");
    const { clientConfig, ...rest } = await serveConversion(t);
    const { caBundle, url } = clientConfig;
    const conversion = conversionBy({ ...rest, clientConfig: { url } as typeof clientConfig });
    const first = kind.manifest({ ...BOTH, conversion });
    t.equal((await kubectl(["apply", "--server-side", "-f", "-"], first)).code, 0);
    const inject = {
      type: MERGE_PATCH,
      body: { spec: { conversion: { webhook: { clientConfig: { caBundle } } } } },
    };
    await api.patch(CRDS, kind, inject, { fieldManager: "cert-manager-cainjector" });
    await cluster.waitForVersion(kind, "v1");
    const manifest = kind.manifest({ ...BOTH, conversion: NONE });
    const path = fileOf(t, manifest);
    const { code, entry } = await check(path);
    t.match({ code, entry }, { code: 5, entry: { verdict: "refused", notes: [/ksvm migrate -f .* --apply/] } });
    const applied = await kubectl(["apply", "--server-side", "--force-conflicts", "-f", "-"], manifest);
    t.not(applied.code, 0, "the API server refuses it from its own client");
    t.match(applied.stderr, /spec\.conversion\.webhook/);
    t.equal((await cluster.migrate(["-f", path])).code, 5);
    const run = await cluster.migrate(["-f", path, "--apply"]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.same((await cluster.crd(kind)).spec.conversion, NONE);
  },
);

parallel(
  "check: a webhook that a file brings and that does not answer keeps objects from being read, and it is said",
  async (t) => {
    const kind = new TestKind("brought");
    await cluster.createStale(kind, 2);
    const path = fileOf(t, kind.manifest(BOTH));
    t.notMatch((await cluster.ksvm(["check", "-f", path])).stdout, /webhook/, "negative control: without one");
    const service = { namespace: "default", name: "nobody", path: "/", port: 443 };
    const webhook = { conversionReviewVersions: ["v1"], clientConfig: { service } };
    const brought = fileOf(t, kind.manifest({ ...BOTH, conversion: { strategy: "Webhook", webhook } }));
    const run = await cluster.ksvm(["check", "-f", brought]);
    t.equal(run.code, 0);
    t.match(run.stdout, /note: it has the conversion webhook \(Service default\/nobody\) convert .*start it before/);
    const applied = await kubectl(["apply", "--server-side", "--force-conflicts", "-f", brought]);
    t.equal(applied.code, 0, applied.stderr);
    const ref = { name: "w0", namespace: "default" };
    const said = () => api.get(kind.resource("v1"), ref).then(() => "", String);
    await eventually(async () => (await said()).includes("conversion webhook"), "no object can be read in v1");
    await api.get(kind.resource("v1alpha1"), ref);
    t.notMatch((await cluster.ksvm(["check", "-f", brought])).stdout, /does not call yet/, "once the CRD calls it");
  },
);

parallel("plan names a conversion webhook that cannot be called, where a migration needs it", async (t) => {
  const webhook = await serveConversion(t);
  const conversion = conversionBy(webhook);
  const [stale, clean] = [new TestKind("needs"), new TestKind("clean")];
  await Promise.all([
    cluster.createStale(stale, 3, { conversion }),
    cluster.createCrd(clean, { storage: "v1", conversion }),
  ]);
  const planOf = async ({ name }: TestKind) => {
    const { stdout } = await cluster.ksvm(["plan", name, "-o", "json"]);
    return (JSON.parse(stdout) as { items: CountedEntry[] }).items[0];
  };
  await eventually(async () => (await planOf(stale))?.objects === 3, "the objects are counted");
  t.equal((await planOf(stale))?.conversionProblem, undefined, "negative control: it is up");
  webhook.setDown(true);
  t.match(await planOf(stale), { action: "migrate", conversionProblem: /conversion webhook for .* failed: Post / });
  t.equal((await planOf(clean))?.conversionProblem, undefined, "a migration of it needs no webhook");
  t.match((await cluster.ksvm(["plan", stale.name])).stdout, /conversion webhook.*127\.0\.0\.1/);
  t.same(await cluster.storedAs(stale), { v1alpha1: 3 });
});
