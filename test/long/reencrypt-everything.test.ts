import { createHash } from "node:crypto";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import t from "tap";
import { storageVersionHashOf } from "../crd.ts";
import type { InitResult } from "../../src/initializer/initialize.ts";
import { IDENTITY, storedWith } from "../control-plane/encryption.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { EncryptedObjects } from "../integration/encrypted-objects.ts";
import { withFewResources } from "../integration/few-resources.ts";
import { NAMESPACE } from "../integration/installation.ts";
import { accountFor } from "../integration/rbac-account.ts";

const OBJECTS = 3;
const OLD = [IDENTITY, "key1"];
const NEW = ["key1", IDENTITY];
const EVERYTHING = { resources: ["*.*"] };
/** What API servers keep in etcd for themselves, which they never encrypt: no key is needed to read it. */
const THEIR_OWN = /^\/registry\/(?:ranges|peerserverleases)\//;
/** Of an aggregated API server. */
const G = "agg.example.org";

const cluster = await Cluster.start(t, { overrides: [withFewResources(OLD, EVERYTHING)] });
const { api, controlPlane } = cluster;
const digest = createHash("sha256").update(withFewResources(NEW, EVERYTHING).encryptionConfig).digest("hex");
await aggregate();

/** Has another API server serve two resources of group {@link G}; the storageVersionHash is shown as by one that is built with k8s.io/apiserver. */
async function aggregate(): Promise<void> {
  const verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
  const things = { name: "things", singularName: "thing", namespaced: true, kind: "Thing", verbs };
  const plain = { name: "plain", singularName: "plain", namespaced: true, kind: "Plain", verbs };
  const hashed = { ...things, storageVersionHash: storageVersionHashOf(G, "v1", "Thing") };
  const answer = { kind: "APIResourceList", apiVersion: "v1", groupVersion: `${G}/v1`, resources: [hashed, plain] };
  const missing = { kind: "Status", apiVersion: "v1", status: "Failure", reason: "NotFound", code: 404 };
  const { pair } = await issueServing();
  const server = createServer({ cert: pair.certPem, key: pair.keyPem }, (request, response) => {
    const isFound = request.url?.split("?")[0] === `/apis/${G}/v1`;
    response.writeHead(isFound ? 200 : 404, { "content-type": "application/json" });
    response.end(JSON.stringify(isFound ? answer : missing));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const service = { name: "aggregated", namespace: "default" };
  await api.create(
    { group: "", version: "v1", resource: "services" },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: service,
      spec: { type: "ExternalName", externalName: "localhost" },
    },
  );
  await api.create(
    { group: "apiregistration.k8s.io", version: "v1", resource: "apiservices" },
    {
      apiVersion: "apiregistration.k8s.io/v1",
      kind: "APIService",
      metadata: { name: `v1.${G}` },
      spec: {
        group: G,
        version: "v1",
        groupPriorityMinimum: 100,
        versionPriority: 100,
        insecureSkipTLSVerify: true,
        service: { ...service, port: (server.address() as AddressInfo).port },
      },
    },
  );
  const isServed = async (): Promise<boolean> => (await controlPlane.request(`/apis/${G}/v1`)).status === 200;
  await eventually(isServed, "the aggregated API server answers");
}

/** What etcd has that is not encrypted with the key. */
async function notWith(key: string): Promise<readonly string[]> {
  const entries = await controlPlane.stored.readPrefix("/registry/");
  const left = entries.filter(({ value }) => !value.toString("latin1", 0, 100).startsWith(storedWith(key)));
  return left.map((entry) => entry.key).filter((name) => !THEIR_OWN.test(name));
}

await t.test(
  "--all rewrites everything in etcd, also of a CRD that comes while it waits for an API server",
  async (t) => {
    const objects = await EncryptedObjects.create(cluster, OBJECTS);
    t.ok((await notWith("key1")).length > 100, "nearly nothing has the key");
    let creating: Promise<EncryptedObjects> | undefined;
    // It works under exactly the roles that ksvm rbac prints for it.
    const account = ["--kubeconfig", await accountFor(cluster, "every-resource", ["--all"])];
    const run = await cluster.ksvm(
      ["reencrypt", "--all", "--unsafe-settle", "2s", "--expect-config", digest, ...account],
      {
        onStdout: (text) => {
          if (!text.includes("waiting ")) return;
          // Someone installs an operator, and only then the API server has the new configuration.
          creating ??= EncryptedObjects.create(cluster, OBJECTS).finally(() =>
            controlPlane.restartApiserver(0, withFewResources(NEW, EVERYTHING)),
          );
        },
      },
    );
    const created = await creating;
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, `not among the resources as they were listed first: now ${created?.kind.name}`);
    t.same(await notWith("key1"), []);
    t.notMatch(run.stdout + run.stderr, /forbidden|may not list|sampled/i, "nothing was refused");
    const elsewhere = ["reencrypt", "secrets", "--lease-namespace", NAMESPACE, ...account];
    t.match(await cluster.ksvm(elsewhere), { code: 1, stderr: /may not create leases/ }, "negative control");
    const left = [...run.stderr.matchAll(/^note: (\S+) is left out: /gm)].map(([, name]) => name);
    t.same(new Set(left), new Set([`plain.${G}`, `things.${G}`]), "what another API server stores is left out by name");
    await controlPlane.restartApiserver(0, withFewResources(["key1"], EVERYTHING));
    t.ok(await objects.areReadable(), "the API server starts, and reads everything, without the old key");
    t.ok(await created?.areReadable());

    const some = await accountFor(cluster, "some-resources", ["configmaps", objects.kind.name]);
    const names = ["configmaps", objects.kind.name, "--unsafe-settle", "10ms", "--kubeconfig", some];
    t.match(await cluster.ksvm(["reencrypt", ...names]), { code: 0, stdout: /re-encrypted 2 of 2 resources/ });
    t.match(await cluster.ksvm(["reencrypt", "secrets", "--kubeconfig", some]), { code: 1, stderr: /may not/ });
  },
);

await t.test("a resource that an aggregated API server stores is refused", async (t) => {
  const { code, stderr } = await cluster.ksvm(["reencrypt", "--unsafe-settle", "1s", `things.${G}`]);
  t.equal(code, 1);
  t.match(
    stderr,
    new RegExp(`Cannot tell which key "things.${G}" has: APIService "v1.${G}" hands it to.*AggregatedApi`),
  );
  const init = await cluster.ksvm(["init", "-y", "-o", "json", "--force"]);
  t.equal(init.code, 0, init.stderr);
  const { migrations, skipped } = JSON.parse(init.stdout) as InitResult;
  const names = migrations.map(({ resource }) => resource);
  t.ok(names.includes("secrets") && !names.some((name) => name.endsWith(G)), "init --force leaves it out, too");
  const reason = "an aggregated API server stores it, and encrypts it by a configuration of its own";
  t.match(
    skipped.find(({ resource }) => resource === `things.${G}`),
    { reason },
  );
});
