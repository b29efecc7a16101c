import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import tap from "tap";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import { API_SERVICES, MERGE_PATCH, type Resource } from "../../src/kube/resources.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";

const SERVICES: Resource = { group: "", version: "v1", resource: "services" };

const cluster = await Cluster.start(tap, { apiservers: 1 });
const { api, controlPlane } = cluster;
const kind = new TestKind("shadowed");
await cluster.createStale(kind, 5);
const LIST = `/apis/${GROUP}/v1/${kind.plural}`;

/**
 * Stands in for an aggregated API server of the same group, version and kind: it shows the storageVersionHash that every server built on
 * k8s.io/apiserver computes, and has no objects. The APIService and kube-aggregator are real.
 */
const { pair } = await issueServing();
const answers: Readonly<Record<string, object>> = {
  [`/apis/${GROUP}/v1`]: {
    kind: "APIResourceList",
    apiVersion: "v1",
    groupVersion: `${GROUP}/v1`,
    resources: [
      {
        name: kind.plural,
        singularName: kind.kind.toLowerCase(),
        namespaced: true,
        kind: kind.kind,
        verbs: ["create", "delete", "get", "list", "patch", "update", "watch"],
        storageVersionHash: storageVersionHashOf(GROUP, "v1", kind.kind),
      },
    ],
  },
  [LIST]: {
    kind: "PartialObjectMetadataList",
    apiVersion: "meta.k8s.io/v1",
    metadata: { resourceVersion: "5" },
    items: [],
  },
};
const notFound = { kind: "Status", apiVersion: "v1", status: "Failure", reason: "NotFound", code: 404 };
const server = createServer({ cert: pair.certPem, key: pair.keyPem }, (request, response) => {
  const answer = answers[(request.url ?? "").split("?")[0] ?? ""];
  response.writeHead(answer === undefined ? 404 : 200, { "content-type": "application/json" });
  response.end(JSON.stringify(answer ?? notFound));
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()));
tap.teardown(() => {
  server.closeAllConnections();
  server.close();
});
const { port } = server.address() as AddressInfo;

async function untilServedBy(who: "CRD" | "aggregated"): Promise<void> {
  await eventually(async () => {
    const { status, body } = await controlPlane.request(LIST);
    return status === 200 && JSON.stringify(body).includes("PartialObjectMetadataList") === (who === "aggregated");
  }, `the group is served by the ${who} API`);
}

await api.create(SERVICES, {
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "aggregated", namespace: "default" },
  spec: { type: "ExternalName", externalName: "localhost" },
});
// What an administrator does who replaces a CRD by an aggregated API server of the same group and kind.
await api.patch(
  API_SERVICES,
  { name: `v1.${GROUP}` },
  {
    type: MERGE_PATCH,
    body: {
      metadata: { labels: { "kube-aggregator.kubernetes.io/automanaged": null } },
      spec: { service: { name: "aggregated", namespace: "default", port }, insecureSkipTLSVerify: true },
    },
  },
);
await untilServedBy("aggregated");

for (const command of [["migrate"], ["reencrypt", "--assume-config-rolled-out", "--settle", "1s"]]) {
  const [name] = command;
  await tap.test(`${name} refuses a CRD whose version an aggregated API server serves`, async (t) => {
    const run = await cluster.ksvm([...command, kind.name]);
    t.equal(run.code, 1);
    t.match(run.stderr, `APIService "v1.${GROUP}" hands ${GROUP}/v1 to another API server`);
    t.same(await cluster.storedAs(kind), { v1alpha1: 5 });
    t.same((await cluster.crd(kind)).status?.storedVersions, ["v1alpha1", "v1"]);
  });
}

await tap.test("a CRD that the API server serves again is migrated", async (t) => {
  await api.delete(API_SERVICES, { name: `v1.${GROUP}` });
  await untilServedBy("CRD");
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  t.same((await cluster.crd(kind)).status?.storedVersions, ["v1"]);
});
