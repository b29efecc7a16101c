import t from "tap";
import { APPLY_PATCH, CRDS } from "../../src/kube/resources.ts";
import type { CheckEntry } from "../../src/plan/check-types.ts";
import { Cluster, eventually } from "./cluster.ts";
import { fileOf } from "./crd-file.ts";
import { type CrdShape, TestKind } from "./crd-fixture.ts";
import { kubectlOf } from "./kubectl.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";

// Files that change spec.conversion, which an apply by another client than that of the CRD cannot take away.

const cluster = await Cluster.start(t);
const { api } = cluster;
const kubectl = await kubectlOf(cluster);

const OLD: CrdShape = { versions: ["v1alpha1", "v1"], storage: "v1alpha1" };
const NEW: CrdShape = { versions: ["v1alpha1", "v1"], storage: "v1" };
const NONE = { strategy: "None" };
/** The ways to apply a file: what each client may take away is another rule. */
const WAYS = [[], ["--server-side"]] as const;

async function check(path: string): Promise<{ readonly code: number | null; readonly entry: CheckEntry | undefined }> {
  const { code, stdout } = await cluster.ksvm(["check", "-f", path, "-o", "json"]);
  return { code, entry: (JSON.parse(stdout) as { items: readonly CheckEntry[] }).items[0] };
}

/** What the API server says to an apply by a client that the CRD does not know. */
async function saidToStranger(manifest: ReturnType<TestKind["manifest"]>) {
  const options = { fieldManager: "stranger", force: true, dryRun: true };
  const { name } = manifest.metadata;
  return api.patch(CRDS, { name }, { type: APPLY_PATCH, body: manifest }, options).then(() => "", String);
}

/** Applies a CRD with a webhook that converts, as its own client does, and objects in both versions. */
async function createConverted(kind: TestKind, conversion: object, args: readonly string[]): Promise<void> {
  for (const shape of [OLD, NEW]) {
    const applied = await kubectl(["apply", ...args, "-f", "-"], kind.manifest({ ...shape, conversion }));
    if (applied.code !== 0) throw new Error(applied.stderr);
    await cluster.waitForVersion(kind, shape.storage);
    const objects = kind.objects(2, shape.storage, shape === OLD ? "old" : "new");
    await cluster.createObjects(kind.resource(shape.storage), objects);
  }
}

for (const args of WAYS) {
  const how = `kubectl apply ${args.join(" ")}`.trim();
  await t.test(
    `check and migrate -f: a file that says strategy None, of the client that wrote the webhook (${how})`,
    async (t) => {
      const kind = new TestKind("none");
      await createConverted(kind, conversionBy(await serveConversion(t)), args);
      const manifest = kind.manifest({ ...NEW, conversion: NONE });
      t.match(await saidToStranger(manifest), /spec\.conversion\.webhook/, "negative control");
      const path = fileOf(t, manifest);
      const { code, entry } = await check(path);
      t.match({ code, entry }, { code: 4, entry: { verdict: "needs-migration" } });
      t.equal(
        entry?.notes.some((note) => /a client that leaves in the CRD what this file leaves out/.test(note)),
        args.length === 0,
        "it is not known what a client takes away that does not apply server-side",
      );
      const run = await cluster.migrate(["-f", path]);
      t.equal(run.code, 0, run.stdout + run.stderr);
      t.same(await cluster.storedAs(kind), { v1: 4 });
      t.equal((await check(path)).code, 0);
      const applied = await kubectl(["apply", ...args, "-f", "-"], manifest);
      t.equal(applied.code, 0, applied.stderr);
      t.same((await cluster.crd(kind)).spec.conversion, NONE);
    },
  );

  await t.test(`check and migrate -f: a file that moves the webhook from a Service to a URL (${how})`, async (t) => {
    const kind = new TestKind("moved");
    const service = { namespace: "default", name: "nobody", path: "/", port: 443 };
    const conversionReviewVersions = ["v1"];
    const webhook = { conversionReviewVersions, clientConfig: { service } };
    const first = kind.manifest({ ...NEW, conversion: { strategy: "Webhook", webhook } });
    t.equal((await kubectl(["apply", ...args, "-f", "-"], first)).code, 0);
    await cluster.waitForVersion(kind, "v1");
    const manifest = kind.manifest({ ...NEW, conversion: conversionBy(await serveConversion(t)) });
    t.match(await saidToStranger(manifest), /spec\.conversion\.webhook/, "negative control");
    const path = fileOf(t, manifest);
    t.match(await check(path), { code: 0, entry: { verdict: "applicable" } });
    const run = await cluster.migrate(["-f", path]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    const applied = await kubectl(["apply", ...args, "-f", "-"], manifest);
    t.equal(applied.code, 0, applied.stderr);
  });
}

await t.test(
  "check: a file that leaves out what another client owns is refused, and migrate -f --apply writes it",
  async (t) => {
    const kind = new TestKind("injected");
    const { clientConfig, ...rest } = await serveConversion(t);
    const { caBundle, url } = clientConfig;
    const conversion = conversionBy({ ...rest, clientConfig: { url } as typeof clientConfig });
    const first = kind.manifest({ ...NEW, conversion });
    t.equal((await kubectl(["apply", "--server-side", "-f", "-"], first)).code, 0);
    const inject = {
      type: "application/merge-patch+json",
      body: { spec: { conversion: { webhook: { clientConfig: { caBundle } } } } },
    };
    await api.patch(CRDS, kind, inject, { fieldManager: "cert-manager-cainjector" });
    await cluster.waitForVersion(kind, "v1");
    const manifest = kind.manifest({ ...NEW, conversion: NONE });
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

await t.test(
  "check: what the API server refuses also where the file takes the place of everything is refused",
  async (t) => {
    const kind = new TestKind("both");
    await cluster.createCrd(kind, { ...NEW, conversion: conversionBy(await serveConversion(t)) });
    const path = fileOf(t, kind.manifest({ ...NEW, conversion: NONE, scope: "Cluster" }));
    const { code, entry } = await check(path);
    t.match({ code, entry }, { code: 5, entry: { verdict: "refused", apiServer: /field is immutable/ } });
    t.equal((await cluster.migrate(["-f", path, "--apply"])).code, 5);
  },
);

await t.test(
  "check: a webhook that a file brings and that does not answer keeps objects from being read, and it is said",
  async (t) => {
    const kind = new TestKind("brought");
    await cluster.createStale(kind, 2);
    const path = fileOf(t, kind.manifest(NEW));
    t.notMatch((await cluster.ksvm(["check", "-f", path])).stdout, /webhook/, "negative control: without one");
    const service = { namespace: "default", name: "nobody", path: "/", port: 443 };
    const webhook = { conversionReviewVersions: ["v1"], clientConfig: { service } };
    const brought = fileOf(t, kind.manifest({ ...NEW, conversion: { strategy: "Webhook", webhook } }));
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
