import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import t from "tap";
import { resourceNameOf, type StorageVersionMigration } from "../../src/api/migration.ts";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import type { InitResult } from "../../src/initializer/initialize.ts";
import { MIGRATIONS, type Resource } from "../../src/kube/resources.ts";
import { encryptionConfig } from "../control-plane/encryption.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP } from "./crd-fixture.ts";

const APISERVICES: Resource = { group: "apiregistration.k8s.io", version: "v1", resource: "apiservices" };
const SERVICES: Resource = { group: "", version: "v1", resource: "services" };

const opt = (keys: readonly string[]) => ({
  hostname: "alpha",
  encryptionConfig: encryptionConfig(keys, ["secrets", `*.${GROUP}`]),
});
const cluster = await Cluster.start(t, { apiservers: 1, overrides: [opt(["key0"])] });
const { api, controlPlane } = cluster;
const G = "agg.example.org";

/** Of group G; no real one of it is at hand. It shows a storageVersionHash, as those built with k8s.io/apiserver do. */
const { pair } = await issueServing();
const server = createServer({ cert: pair.certPem, key: pair.keyPem }, (request, response) => {
  const send = (status: number, body: object) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
  };
  const path = (request.url ?? "").split("?")[0];
  const verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
  const hash = storageVersionHashOf(G, "v1", "Thing");
  if (path === `/apis/${G}/v1`) {
    return send(200, {
      kind: "APIResourceList",
      apiVersion: "v1",
      groupVersion: `${G}/v1`,
      resources: [
        // As k8s.io/apiserver shows it: registry.Store is a StorageVersionProvider.
        { name: "things", singularName: "thing", namespaced: true, kind: "Thing", verbs, storageVersionHash: hash },
        { name: "plain", singularName: "plain", namespaced: true, kind: "Plain", verbs },
        { name: "fixed", singularName: "fixed", namespaced: true, kind: "Fixed", verbs: ["get", "list", "create"] },
      ],
    });
  }
  if (path === `/apis/${G}/v1/things`) {
    return send(200, {
      kind: "PartialObjectMetadataList",
      apiVersion: "meta.k8s.io/v1",
      metadata: { resourceVersion: "5" },
      items: [],
    });
  }
  return send(404, { kind: "Status", apiVersion: "v1", status: "Failure", reason: "NotFound", code: 404 });
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()));
t.teardown(() => {
  server.closeAllConnections();
  server.close();
});
const { port } = server.address() as AddressInfo;

await api.create(SERVICES, {
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "aggregated", namespace: "default" },
  spec: { type: "ExternalName", externalName: "localhost" },
});
await api.create(APISERVICES, {
  apiVersion: "apiregistration.k8s.io/v1",
  kind: "APIService",
  metadata: { name: `v1.${G}` },
  spec: {
    group: G,
    version: "v1",
    groupPriorityMinimum: 100,
    versionPriority: 100,
    insecureSkipTLSVerify: true,
    service: { name: "aggregated", namespace: "default", port },
  },
});
await eventually(async () => {
  const { body } = await controlPlane.request(`/apis/${G}/v1/things`);
  return JSON.stringify(body).includes("PartialObjectMetadataList");
}, "the aggregated API server answers");

await t.test("reencrypt refuses a resource that an aggregated API server stores", async (t) => {
  const { code, stderr } = await cluster.ksvm(["reencrypt", "--settle", "1s", `things.${G}`]);
  t.equal(code, 1);
  t.match(
    stderr,
    /Cannot tell which key "things\.agg\.example\.org" has: APIService "v1\.agg\.example\.org" hands it to/,
  );
  t.match(stderr, /\[AggregatedApi\]/);
});

await t.test("reencrypt --all leaves out by name what aggregated API servers store", async (t) => {
  const run = await cluster.ksvm(["reencrypt", "--settle", "1s", "--all"]);
  t.equal(run.code, 0, run.stderr);
  for (const name of ["things", "plain", "fixed"]) {
    t.match(run.stderr, `note: ${name}.${G} is left out: `);
    t.notMatch(run.stdout, `${name}.${G}`);
  }
  const left = [...run.stderr.matchAll(/^note: (\S+) is left out/gm)].map(([, name]) => name);
  t.same(new Set(left), new Set([`fixed.${G}`, `plain.${G}`, `things.${G}`]), "and nothing that kube-apiserver stores");
});

await t.test("init --force leaves out by name what aggregated API servers store", async (t) => {
  const init = async (...flags: readonly string[]): Promise<InitResult> => {
    const { code, stderr, stdout } = await cluster.ksvm(["init", "-y", "-o", "json", ...flags]);
    t.equal(code, 0, stderr);
    return JSON.parse(stdout) as InitResult;
  };
  const before = await init();
  t.ok(
    before.migrations.some(({ resource }) => resource === `things.${G}`),
    "negative control: it is migrated without --force",
  );
  const { migrations, skipped } = await init("--force");
  const names = migrations.map(({ resource }) => resource);
  t.same(
    names.filter((name) => name.endsWith(G)),
    [],
  );
  t.ok(["secrets", "deployments.apps"].every((name) => names.includes(name)));
  const reason = "an aggregated API server stores it, and encrypts it by a configuration of its own";
  t.match(
    skipped.filter(({ resource }) => resource === `things.${G}`),
    [{ reason }],
  );
  const left = (await api.list<StorageVersionMigration>(MIGRATIONS)).map(({ spec }) => resourceNameOf(spec.resource));
  t.notOk(left.includes(`things.${G}`), "the one of the earlier init is gone, too");
});
