import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { parseAllDocuments } from "yaml";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { render } from "./kubectl.ts";
import { assertUpgrade } from "./vendor-job.ts";

const ROOT = join(import.meta.dirname, "../..");

const cluster = await Cluster.start(t);

await t.test("deploy/vendor/job migrates one CRD before an upgrade, with the rights of its role", async (t) => {
  await assertUpgrade(t, cluster, await render("deploy/vendor/job"));
});

await t.test("deploy/vendor/argo-cd is the same as hooks: the Job runs when its role is there", async (t) => {
  const documents = await render("deploy/vendor/argo-cd");
  const waves = documents.map(({ kind, metadata }) => {
    const { annotations = {} } = metadata as { annotations?: Record<string, string> };
    t.equal(annotations["argocd.argoproj.io/hook"], "PreSync", kind as string);
    return [kind, Number(annotations["argocd.argoproj.io/sync-wave"])] as const;
  });
  t.same(
    waves.filter(([, wave]) => wave === 0),
    [["Job", 0]],
  );
  t.ok(waves.every(([kind, wave]) => kind === "Job" || wave < 0));
  await assertUpgrade(t, cluster, documents);
});

interface FluxKustomization {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly path: string;
    readonly wait: boolean;
    readonly force?: boolean;
    readonly dependsOn?: readonly { readonly name: string }[];
  };
}

await t.test("deploy/vendor/flux applies the CRDs when the Job has ended", async (t) => {
  const text = readFileSync(join(ROOT, "deploy/vendor/flux/kustomizations.yaml"), "utf8");
  const [first, second] = parseAllDocuments(text).map((document) => document.toJS() as FluxKustomization);
  t.match(first, { spec: { wait: true, force: true } });
  t.same(second?.spec.dependsOn, [{ name: first?.metadata.name }]);
  t.ok(existsSync(join(ROOT, first?.spec.path ?? "", "kustomization.yaml")));
});

await t.test("ksvm migrate --ignore-not-found: a CRD that is not there yet is no error", async (t) => {
  const kind = new TestKind("later");
  const run = await cluster.migrate([kind.name, "--ignore-not-found"]);
  t.match(run, { code: 0, stdout: `${kind.name}: nothing to do: the cluster has no such resource\n`, stderr: "" });
  const strict = await cluster.migrate([kind.name]);
  t.match(strict, { code: 1, stderr: /ResourceNotFound/ }, "negative control");
  const stale = new TestKind("stale");
  await cluster.createStale(stale, 2);
  const both = await cluster.migrate([kind.name, stale.name, "--ignore-not-found"]);
  t.equal(both.code, 0, both.stderr);
  t.same(await cluster.storedAs(stale), { v1: 2 });
});
