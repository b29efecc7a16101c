// Credentials that are withdrawn in the middle of a run.
import { appendFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { hasFreezeAnnotation } from "../integration/frozen.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { parallel } from "../integration/parallel.ts";
import { untilRewriting } from "../integration/slow-run.ts";

const cluster = await Cluster.start(t);
const ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS = "/api/v1/namespaces/default/secrets";

/** How many objects, and how fast: an API server goes on believing a token for ten seconds after it was withdrawn. */
const OBJECTS = 300;
const FLAGS = ["--max-qps", "12"];

/** Issues a token that is bound to a Secret, so that it can be withdrawn; fails while the file `broken` exists. */
const PLUGIN = `
import { appendFileSync, existsSync } from "node:fs";
const [server, token, folder] = process.argv.slice(2);
if (existsSync(folder + "/broken")) {
  appendFileSync(folder + "/log", "failed\\n");
  console.error("the login service is down");
  process.exit(1);
}
const post = async (path, body) => {
  const headers = { authorization: "Bearer " + token, "content-type": "application/json" };
  const answer = await fetch(server + path, { method: "POST", headers, body: JSON.stringify(body) });
  return answer.json();
};
const secret = await post("${SECRETS}", { metadata: { generateName: "login-" } });
const { name, uid } = secret.metadata;
const boundObjectRef = { apiVersion: "v1", kind: "Secret", name, uid };
const { status } = await post("${ACCOUNTS}/ksvm/token", { spec: { boundObjectRef, expirationSeconds: 3600 } });
appendFileSync(folder + "/log", name + "\\n");
console.log(JSON.stringify({
  apiVersion: "client.authentication.k8s.io/v1",
  kind: "ExecCredential",
  status: { token: status.token, expirationTimestamp: status.expirationTimestamp },
}));
`;

function post(path: string, body: object) {
  return cluster.controlPlane.request(path, { method: "POST", body });
}

// The user of the exec plugin may do everything.
await post(ACCOUNTS, { metadata: { name: "ksvm" } });
await post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
  metadata: { name: "ksvm-login" },
  roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "cluster-admin" },
  subjects: [{ kind: "ServiceAccount", name: "ksvm", namespace: "default" }],
});

/** A kubeconfig with that plugin, and what can be done to it. */
function loginService(t: Test) {
  const admin = JSON.parse(cluster.controlPlane.kubeconfigTextFor()) as {
    clusters: { cluster: { server: string } }[];
    users: { user: { token: string } }[];
  };
  const { server = "" } = admin.clusters[0]?.cluster ?? {};
  const { token = "" } = admin.users[0]?.user ?? {};
  const folder = t.testdir({ "plugin.mjs": PLUGIN, "ca.crt": cluster.controlPlane.ca, log: "" });
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: process.execPath,
    args: [join(folder, "plugin.mjs"), server, token, folder],
    env: [{ name: "NODE_EXTRA_CA_CERTS", value: join(folder, "ca.crt") }],
    interactiveMode: "Never",
  };
  const [first] = admin.users;
  const users = [{ ...first, user: { exec } }];
  const kubeconfig = join(folder, "config");
  writeFileSync(kubeconfig, JSON.stringify({ ...admin, users }));
  const log = (): readonly string[] => readFileSync(join(folder, "log"), "utf8").trim().split("\n");
  return {
    kubeconfig,
    log,
    /** From now on there are no credentials: those in use are withdrawn, and no others are issued. */
    breakDown: async (): Promise<void> => {
      appendFileSync(join(folder, "broken"), "");
      for (const name of log()) await cluster.controlPlane.request(`${SECRETS}/${name}`, { method: "DELETE" });
      await eventually(() => Promise.resolve(log().includes("failed")), "the plugin failed");
    },
    repair: (): void => rmSync(join(folder, "broken")),
  };
}

parallel("a run outlives credentials that are withdrawn while the exec plugin fails", async (t) => {
  const kind = new TestKind("outlived");
  await cluster.createStale(kind, OBJECTS);
  const login = loginService(t);
  const ended = cluster.migrate([kind.name, ...FLAGS, "--kubeconfig", login.kubeconfig]);
  await untilRewriting(cluster, kind);
  await login.breakDown();
  t.equal(hasFreezeAnnotation(await cluster.crd(kind)), true, "it goes on, frozen");
  login.repair();
  const { code, stdout, stderr } = await ended;
  t.equal(code, 0, stdout + stderr);
  t.same(await cluster.storedAs(kind), { v1: OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  t.equal(hasFreezeAnnotation(await cluster.crd(kind)), false);
});

parallel("a run that is interrupted while the exec plugin fails lifts its freeze all the same", async (t) => {
  const kind = new TestKind("interruptedlogin");
  await cluster.createStale(kind, OBJECTS);
  const login = loginService(t);
  const interruption = new AbortController();
  const args = [kind.name, ...FLAGS, "--kubeconfig", login.kubeconfig];
  const ended = cluster.migrate(args, { signal: interruption.signal });
  await untilRewriting(cluster, kind);
  await login.breakDown();
  interruption.abort(new Error("Ctrl-C"));
  const failures = (): number => login.log().filter((line) => line === "failed").length;
  const before = failures();
  await eventually(() => Promise.resolve(failures() > before), "the cleanup has tried");
  login.repair();
  const { stdout, stderr } = await ended;
  t.equal(hasFreezeAnnotation(await cluster.crd(kind)), false, stdout + stderr);
});

/** A token of the service account that is bound to a new Secret, and the Secret's name. */
async function issue(): Promise<{ readonly token: string; readonly secret: string }> {
  const created = await post(SECRETS, { metadata: { generateName: "file-" } });
  const { name, uid } = (created.body as { metadata: { name: string; uid: string } }).metadata;
  const boundObjectRef = { apiVersion: "v1", kind: "Secret", name, uid };
  const spec = { boundObjectRef, expirationSeconds: 3600 };
  const { body } = await post(`${ACCOUNTS}/ksvm/token`, { spec });
  return { token: (body as { status: { token: string } }).status.token, secret: name };
}

parallel("a run waits while the API server answers 401 for longer than 15 seconds, and goes on", async (t) => {
  const kind = new TestKind("refused");
  await cluster.createStale(kind, OBJECTS);
  const { token, secret } = await issue();
  const folder = t.testdir({ token });
  const tokenFile = join(folder, "token");
  const admin = JSON.parse(cluster.controlPlane.kubeconfigTextFor()) as { users: object[] };
  const kubeconfig = join(folder, "config");
  writeFileSync(kubeconfig, JSON.stringify({ ...admin, users: [{ ...admin.users[0], user: { tokenFile } }] }));
  const ended = cluster.migrate([kind.name, ...FLAGS, "-o", "json", "--kubeconfig", kubeconfig]);
  await untilRewriting(cluster, kind);
  await cluster.controlPlane.request(`${SECRETS}/${secret}`, { method: "DELETE" });
  const isRefused = async (): Promise<boolean> => {
    const review = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token } };
    const { body } = await post("/apis/authentication.k8s.io/v1/tokenreviews", review);
    return (body as { status: { authenticated?: boolean } }).status.authenticated !== true;
  };
  await eventually(isRefused, "the API server refuses the token", 60_000);
  // What was under way has been answered by then.
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  const before = (await cluster.storedAs(kind))["v1"];
  await new Promise((resolve) => setTimeout(resolve, 20_000));
  t.equal((await cluster.storedAs(kind))["v1"], before, "nothing is written for 20 s");
  writeFileSync(tokenFile, (await issue()).token);
  const { code, stdout, stderr } = await ended;
  t.equal(code, 0, stdout + stderr);
  t.match(stdout + stderr, /401/, "it said why it waited");
  t.same(await cluster.storedAs(kind), { v1: OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});
