import type { Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { APPLY_PATCH, CRDS, type NewObject } from "../api-client.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import type { Cluster } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { applyAll, NAMESPACE } from "./installation.ts";
import { type Job, runPodOf } from "./job-runner.ts";

const CRONTABS = {
  plural: "crontabs",
  group: "stable.example.com",
  namespace: "crontab-system",
  job: "crontab-migrate",
};

/** What a vendor does with an example of deploy/vendor: writes the names of the own CRD and namespace into it. */
function ownedBy(kind: TestKind, documents: readonly NewObject[]): readonly NewObject[] {
  const text = JSON.stringify(documents)
    .replaceAll(`${CRONTABS.plural}.${CRONTABS.group}`, kind.name)
    .replaceAll(`"${CRONTABS.plural}"`, `"${kind.plural}"`)
    .replaceAll(CRONTABS.group, GROUP)
    .replaceAll(CRONTABS.job, `${kind.plural}-migrate`)
    .replaceAll(CRONTABS.namespace, NAMESPACE);
  return JSON.parse(text) as readonly NewObject[];
}

function jobIn(documents: readonly NewObject[]): Job {
  const [job, ...others] = documents.filter((document): document is Job => document["kind"] === "Job");
  if (job === undefined || others.length > 0) throw new Error("There is not exactly one Job");
  return job;
}

/** What the API server says to the CRD of a release without `v1alpha1`; nothing where it takes it. */
async function applyNext({ api }: Cluster, kind: TestKind): Promise<string> {
  const body = kind.manifest({ versions: ["v1"], storage: "v1" });
  try {
    await api.patch(CRDS, { name: kind.name }, { type: APPLY_PATCH, body }, { fieldManager: "vendor", force: true });
    return "";
  } catch (error) {
    if (error instanceof ApiError) return error.said;
    throw error;
  }
}

/**
 * Goes through the upgrade that an example of deploy/vendor is for. Nothing runs pods here, so the test runs the command of the Job,
 * under the ServiceAccount of the Job.
 * @param documents as they were rendered
 */
export async function assertUpgrade(t: Test, cluster: Cluster, documents: readonly NewObject[]): Promise<void> {
  const [kind, other] = [new TestKind("mine"), new TestKind("other")];
  await cluster.createStale(kind, 10);
  await cluster.createStale(other, 3);
  const owned = ownedBy(kind, documents);
  await applyAll(cluster.api, [{ apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } }, ...owned]);

  t.match(await applyNext(cluster, kind), /spec\.versions/, "negative control: without the Job the upgrade is refused");
  const run = await runPodOf(cluster, jobIn(owned));
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.notMatch(run.stdout + run.stderr, /forbidden|may not|sampled|warning: (?!--unsafe-settle)/i, "the role is enough");
  t.same(await cluster.storedAs(kind), { v1: 10 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
  t.equal(await applyNext(cluster, kind), "", "the upgrade goes on");
  t.same(await cluster.storedAs(kind), { v1: 10 });

  const again = await cluster.migrate(run.args);
  t.match(again, { code: 0, stdout: /nothing to do/ }, "it may run again");
  const [, ...flags] = run.args;
  const others = await cluster.migrate([other.name, ...flags]);
  t.equal(others.code, 1, "another CRD is out of its reach");
  t.same(await cluster.storedAs(other), { v1alpha1: 3 });
}
