import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { encryptionConfig, storedWith } from "../control-plane/encryption.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { balance } from "./balancer.ts";
import { Cluster, eventually } from "./cluster.ts";
import { startController } from "./controller.ts";
import { TestKind } from "./crd-fixture.ts";
import { createMigration, installSystem, readMigration, untilState } from "./migrations.ts";
import { SLOW_FLAGS, SLOW_RUN_OBJECTS, startSlowRun } from "./slow-run.ts";

// Two API servers of which the second one hangs (SIGSTOP), is killed, or comes back otherwise.

const KEYS = encryptionConfig(["new", "old"], ["secrets"]);
const HOSTS = [{ hostname: "alpha" }, { hostname: "beta" }];
const cluster = await Cluster.start(t, { apiservers: 2, overrides: HOSTS, encryptionConfig: KEYS });
const { controlPlane } = cluster;
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) throw new Error("two API servers were asked for");
const BOTH = [first.url, second.url];
t.teardown(() => second.resume());
await installSystem(cluster);

/** The CRD of a kind changes its storage version while the second API server hangs, and a load balancer leaves that one out. */
async function hang(t: Parameters<typeof balance>[0], word: string) {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(5, "v1alpha1"));
  second?.pause();
  t.teardown(() => second?.resume());
  await cluster.setVersions(kind, { storage: "v1" });
  const balancer = await balance(t, controlPlane, BOTH.slice(0, 1));
  const wakeUp = (): void => {
    second?.resume();
    balancer.use(BOTH);
  };
  return { kind, kubeconfig: balancer.kubeconfig, wakeUp };
}

await t.test("a hung API server is waited for without a freeze, and named; then the run goes on", async (t) => {
  const { kind, kubeconfig, wakeUp } = await hang(t, "hung");
  let output = "";
  const ended = cluster.migrate([kind.name, "--kubeconfig", kubeconfig], { onStdout: (text) => (output += text) });
  await eventually(async () => /ApiServerMissing.*of host beta/.test(output), "the run waits, and names it");
  const identity = /apiserver-\w+(?= of host beta)/.exec(output)?.[0] ?? "";
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 }, "nothing is rewritten");
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
  await assertUnfrozen(t, cluster, kind);

  const other = new TestKind("ignored");
  await cluster.createStale(other, 5);
  const ignoring = await cluster.migrate([other.name, "--kubeconfig", kubeconfig, "--ignore-apiserver", identity]);
  t.equal(ignoring.code, 0, `--ignore-apiserver goes on without it: ${ignoring.stderr}`);

  wakeUp();
  const run = await ended;
  t.equal(run.code, 0, run.stderr);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});

await t.test("a migration waits for a hung API server with reason ApiServerMissing, others go on", async (t) => {
  const { kind, kubeconfig, wakeUp } = await hang(t, "controlled");
  await startController(t, cluster, { flags: ["--concurrent-migrations=1"], kubeconfig });
  const created = await createMigration(cluster, kind);
  const waiting = await untilState(cluster, created, ["Waiting"]);
  const condition = waiting.status?.conditions?.find(({ type }) => type === "Waiting");
  t.match(condition, { status: "True", reason: "ApiServerMissing", message: "of host beta" });
  await assertUnfrozen(t, cluster, kind);
  const clean = new TestKind("clean");
  await cluster.createCrd(clean, { storage: "v1" });
  await untilState(cluster, await createMigration(cluster, clean), ["Succeeded"]);
  t.match((await readMigration(cluster, created)).status, { conditions: [{ type: "Waiting", status: "True" }] });
  wakeUp();
  await untilState(cluster, created, ["Succeeded"]);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

await t.test("one that hangs in mid-run: the freeze is lifted, and the run goes on when it answers", async (t) => {
  const kind = new TestKind("midrun");
  const balancer = await balance(t, controlPlane, BOTH);
  const run = await startSlowRun(cluster, kind, { flags: ["--kubeconfig", balancer.kubeconfig] });
  second.pause();
  balancer.use(BOTH.slice(0, 1));
  await eventually(
    async () => (await cluster.crd(kind)).metadata.annotations?.["ksvm.sigs.k8s.io/migrating"] === undefined,
    "it is unfrozen",
  );
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned");
  second.resume();
  balancer.use(BOTH);
  const { code, stderr } = await run.ended;
  t.equal(code, 0, stderr);
  t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

await t.test("one that is killed and writes with another key for a while makes the run begin again", async (t) => {
  const secret = (name: string) => {
    return { apiVersion: "v1", kind: "Secret", metadata: { name, namespace: "default" }, type: "Opaque" };
  };
  const secrets = { group: "", version: "v1", resource: "secrets" };
  const names = Array.from({ length: SLOW_RUN_OBJECTS }, (_, index) => `secret${index}`);
  await cluster.createObjects(secrets, names.map(secret));
  let output = "";
  const flags = ["--apiserver-endpoints", BOTH.join(), ...SLOW_FLAGS];
  const ended = cluster.migrate(["secrets", ...flags], { onStdout: (text) => (output += text) });
  await eventually(async () => /\d\d\/1\d\d/.test(output), "the run is under way");
  await controlPlane.restartApiserver(1, {
    ...HOSTS[1],
    encryptionConfig: encryptionConfig(["old", "new"], ["secrets"]),
  });
  const late = { method: "POST", body: secret("aaa-late"), apiserver: 1 } as const;
  const path = "/api/v1/namespaces/default/secrets";
  await eventually(async () => (await controlPlane.request(path, late)).status === 201, "it serves again");
  await controlPlane.restartApiserver(1, HOSTS[1]);
  const { code, stderr, stdout } = await ended;
  t.equal(code, 0, stderr);
  t.match(stdout, /starting again/);
  const stored = await controlPlane.stored.objectsUnder("/registry/secrets/default/");
  t.equal(stored.length, SLOW_RUN_OBJECTS + 1);
  t.same(new Set(stored.map(({ encryptedWith }) => encryptedWith)), new Set([storedWith("new")]));
});
