// The examples in deploy/vendor: a Job that migrates one CRD before the upgrade of what owns it.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { parseAllDocuments, stringify } from "yaml";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { withPodsRunning } from "./job-runner.ts";
import { kubectlOf, render } from "./kubectl.ts";
import { assertUpgrade } from "./vendor-job.ts";

const ROOT = join(import.meta.dirname, "../..");

const cluster = await Cluster.start(t);

await t.test("deploy/vendor/job migrates one CRD before an upgrade, with the rights of its role", async (t) => {
  await assertUpgrade(t, cluster, await render("deploy/vendor/job"));
});

await t.test("deploy/vendor/argo-cd is the same as hooks: the Job runs when its role is there", async (t) => {
  const documents = await render("deploy/vendor/argo-cd");
  const waves = documents.map(({ kind, metadata }) => {
    const { annotations = {} } = metadata;
    t.equal(annotations["argocd.argoproj.io/hook"], "PreSync", kind as string);
    return [kind, Number(annotations["argocd.argoproj.io/sync-wave"])] as const;
  });
  t.ok(waves.every(([kind, wave]) => (kind === "Job" ? wave === 0 : wave < 0)));
  const withoutHooks = documents.map(({ metadata, ...rest }) => ({
    ...rest,
    metadata: { ...metadata, annotations: undefined },
  }));
  t.match(withoutHooks, await render("deploy/vendor/job"));
});

/** The example as a vendor has it for a release: `release` is in the name of the Job. */
async function releaseOf(release: string, image = "ksvm:0.1.0"): Promise<string> {
  const documents = await render("deploy/vendor/job");
  return documents
    .map((document) =>
      stringify(document)
        .replaceAll("3-0-0", release)
        .replaceAll(/ksvm:[\w.]+/g, image),
    )
    .join("\n---\n");
}

await t.test("a Job that has ended never runs again, and that of the next release does, by its name", async (t) => {
  const kubectl = await kubectlOf(cluster);
  await kubectl(["create", "namespace", "crontab-system"]);
  const ended = async (manifests: string) => {
    const wait = ["wait", "-n", "crontab-system", "--for=condition=complete", "--timeout=1m", "job", "--all"];
    const both = async () => [await kubectl(["apply", "-f", "-"], manifests), await kubectl(wait)] as const;
    const { result, ends } = await withPodsRunning(cluster, "crontab-system", both);
    const [applied, waited] = result;
    return { ...applied, waited: waited.code, runs: ends.map(({ stdout }) => stdout) };
  };
  const didRun = { code: 0, waited: 0, runs: [/nothing to do: the cluster has no such resource/] };
  const job = "job.batch/crontab-migrate";
  t.match(await ended(await releaseOf("3-0-0")), { ...didRun, stdout: `${job}-3-0-0 created` });
  const same = await ended(await releaseOf("3-0-0"));
  t.match(same, { code: 0, stdout: `${job}-3-0-0 unchanged` });
  t.match(
    same,
    { waited: 0, runs: { length: 0 } },
    "negative control: nothing runs, and kubectl wait succeeds all the same",
  );
  const changed = await ended(await releaseOf("3-0-0", "ksvm:0.2.0"));
  t.match(changed, { code: 1, stderr: /field is immutable/, runs: { length: 0 } }, "negative control: another image");
  t.match(await ended(await releaseOf("3-1-0", "ksvm:0.2.0")), { ...didRun, stdout: `${job}-3-1-0 created` });
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
  const [later, stale] = [new TestKind("later"), new TestKind("stale")];
  await cluster.createStale(stale, 2);
  t.match(await cluster.migrate([later.name]), { code: 1, stderr: /ResourceNotFound/ });
  const both = await cluster.migrate([later.name, stale.name, "--ignore-not-found"]);
  t.equal(both.code, 0, both.stderr);
  t.same(await cluster.storedAs(stale), { v1: 2 });
});
