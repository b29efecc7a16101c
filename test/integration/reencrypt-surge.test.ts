import t, { type Test } from "tap";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "./cluster.ts";
import { EncryptedObjects, optionsOf } from "./encrypted-objects.ts";

// An API server with the old configuration that is added for a while, as in an upgrade that adds one before it removes another.

const OBJECTS = 60;
const OLD = ["key0", "key1"];
const NEW = ["key1", "key0"];
// So slow that an API server starts and ends within a run, also on a busy machine.
const FLAGS = ["--settle", "1s", "--max-qps", "2", "--page-size", "10"];
const LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const RBAC = { group: "rbac.authorization.k8s.io", version: "v1" };

const cluster = await Cluster.start(t, {
  apiservers: 1,
  overrides: [optionsOf(0, OLD)],
  users: [{ name: "unwatching" }],
});
const { api, controlPlane } = cluster;
const [server = ""] = controlPlane.apiservers.map(({ url }) => url);
const objects = await EncryptedObjects.create(cluster, OBJECTS);
/** Where each one that is added has its place. */
let added = 0;

async function identityLeases(): Promise<number> {
  const { body } = await controlPlane.request(LEASES);
  const { items } = body as { items: readonly { metadata: { name: string } }[] };
  return items.filter(({ metadata }) => metadata.name.startsWith("apiserver-")).length;
}

/** Starts one API server more, has it write what was rewritten already, and ends it. */
async function surge(): Promise<void> {
  added++;
  const one = await controlPlane.addApiserver(optionsOf(1, OLD));
  const path = `/api/v1/namespaces/${objects.namespace}/secrets`;
  for (const name of ["o0", "o1"]) {
    const body = { metadata: { labels: { surge: String(added) } } };
    const { status } = await controlPlane.request(`${path}/${name}`, { method: "PATCH", apiserver: added, body });
    if (status !== 200) throw new Error(`HTTP ${status}`);
  }
  await one.stop();
}

/** Runs a command, with one surge in its midst. */
async function ksvmWithSurge(t: Test, args: readonly string[]) {
  await controlPlane.restartApiserver(0, optionsOf(0, NEW));
  await eventually(async () => (await identityLeases()) === 1, "one identity Lease is left");
  let surged: Promise<boolean> | undefined;
  let isOver = false;
  const run = await cluster.ksvm(args, {
    onStdout: (text) => {
      if (/secrets: +\d+% [1-9]/.test(text)) {
        surged ??= surge().then(() => isOver);
      }
    },
  });
  isOver = true;
  t.equal(await surged, false, "the API server joined and left within the run");
  return run;
}

async function keysOfSecrets(): Promise<Readonly<Record<string, number>>> {
  return (await objects.keysOfEach()).get("secrets") ?? {};
}

await t.test("reencrypt starts again where an API server with the old key joined and left in between", async (t) => {
  const { code, stderr, stdout } = await ksvmWithSurge(t, ["reencrypt", ...FLAGS, "secrets"]);
  t.equal(code, 0, stdout + stderr);
  t.match(
    stdout,
    /secrets: starting again: .*the API server of identity Lease apiserver-\S+ (?:joined|left) during the run/,
  );
  t.same(await keysOfSecrets(), { [storedWith("key1")]: OBJECTS });
});

await t.test("reencrypt rewrites a resource again that was done when such an API server joined", async (t) => {
  await controlPlane.restartApiserver(0, optionsOf(0, NEW));
  await eventually(async () => (await identityLeases()) === 1, "one identity Lease is left");
  let surged: Promise<void> | undefined;
  const { code, stderr, stdout } = await cluster.ksvm(["reencrypt", ...FLAGS, "secrets", "configmaps"], {
    onStdout: (text) => {
      if (/configmaps: +\d+% [1-9]/.test(text)) surged ??= surge();
    },
  });
  await surged;
  t.equal(code, 0, stdout + stderr);
  t.match(
    stdout,
    /every resource: since then an API server may have come, gone or changed its encryption: again secrets/,
  );
  t.same(await keysOfSecrets(), { [storedWith("key1")]: OBJECTS });
});

await t.test(
  "negative control: without the right to watch, objects keep the old key, as the warning says",
  async (t) => {
    const name = "unwatching";
    const rules = [
      { apiGroups: ["*"], resources: ["*"], verbs: ["get", "list", "create", "update", "patch", "delete"] },
      { nonResourceURLs: ["*"], verbs: ["get"] },
    ];
    const about = { apiVersion: "rbac.authorization.k8s.io/v1", metadata: { name } };
    await api.create({ ...RBAC, resource: "clusterroles" }, { ...about, kind: "ClusterRole", rules });
    await api.create(
      { ...RBAC, resource: "clusterrolebindings" },
      {
        ...about,
        kind: "ClusterRoleBinding",
        roleRef: { apiGroup: RBAC.group, kind: "ClusterRole", name },
        subjects: [{ apiGroup: RBAC.group, kind: "User", name }],
      },
    );
    const kubeconfig = ["--kubeconfig", controlPlane.kubeconfigFor(name)];
    const refused = await cluster.ksvm(["reencrypt", ...FLAGS, "secrets", ...kubeconfig]);
    t.match(refused, { code: 1, stderr: /may not watch leases.coordination.k8s.io in namespace "kube-system"/ });
    const args = ["reencrypt", ...FLAGS, "--apiserver-endpoints", server, "secrets", ...kubeconfig];
    const { code, stderr, stdout } = await ksvmWithSurge(t, args);
    t.equal(code, 0, stdout + stderr);
    t.match(
      stdout,
      /warning: Cannot prove that no other API server joins and leaves during this run: .*may not watch leases/,
    );
    t.same(await keysOfSecrets(), { [storedWith("key0")]: 2, [storedWith("key1")]: OBJECTS - 2 });
  },
);
