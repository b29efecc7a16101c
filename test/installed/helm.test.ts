import { join } from "node:path";
import t from "tap";
import type { NewObject } from "../api-client.ts";
import { Cluster } from "../integration/cluster.ts";
import { NAMESPACE } from "../integration/installation.ts";
import { render } from "../integration/kubectl.ts";
import { assertUpgrade } from "../integration/vendor-job.ts";
import { ensureHelm, helmTemplate } from "./helm.ts";

const CHART = join(import.meta.dirname, "../../deploy/vendor/helm-chart");

const helm = await ensureHelm();
const cluster = await Cluster.start(t);

await t.test("deploy/vendor/helm-chart, as the real helm renders it, migrates one CRD before an upgrade", async (t) => {
  const documents = await helmTemplate(helm, CHART, NAMESPACE);
  for (const { kind, metadata } of documents) {
    const { annotations } = metadata as { annotations?: Record<string, string> };
    const weight = kind === "Job" ? "0" : "-1";
    t.match(annotations, { "helm.sh/hook": "pre-upgrade", "helm.sh/hook-weight": weight }, kind as string);
  }
  await assertUpgrade(t, cluster, documents);
});

function rolesIn(documents: readonly NewObject[]): ReadonlyMap<string, unknown> {
  return new Map(
    documents.flatMap(({ kind, metadata, ...document }) =>
      "rules" in document ? [[`${String(kind)} ${metadata.namespace ?? ""}`, document["rules"]]] : [],
    ),
  );
}

await t.test("deploy/vendor/helm-chart has the roles of deploy/vendor/job", async (t) => {
  const expected = rolesIn(await render("deploy/vendor/job"));
  t.equal(expected.size, 3);
  t.same(rolesIn(await helmTemplate(helm, CHART, NAMESPACE)), expected);
});
