import t from "tap";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { specKeyOf } from "../../src/api/crd.ts";
import { MERGE_PATCH } from "../../src/kube/resources.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { EncryptedObjects, optionsOf, restartWith, shownConfig } from "./encrypted-objects.ts";
import { objectWebhook } from "./object-webhook.ts";

const OBJECTS = 8;
const ALL = OBJECTS * 3;
const SECRETS = { group: "", version: "v1", resource: "secrets" };

const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [optionsOf(0, ["key0"]), optionsOf(1, ["key0"])],
});
const { controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const objects = await EncryptedObjects.create(cluster, OBJECTS);

/** As a user calls it. */
function verify(args: readonly string[]) {
  return cluster.ksvm(["verify", "--settle", "1s", "--apiserver-endpoints", `${first},${second}`, ...args]);
}

interface VerificationLine {
  readonly type: string;
  readonly resource: string;
  readonly outcome: string;
  readonly counts: Readonly<Record<string, number>>;
  readonly changed: readonly object[];
}

/** The lines of `-o json` of this type. */
function linesOf(stdout: string, type: string): readonly VerificationLine[] {
  const lines = stdout.trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line) as VerificationLine).filter((line) => line.type === type);
}

await t.test(
  "verify shows through both API servers that every object is current, and leaves etcd as it was",
  async (t) => {
    const before = await objects.stored();
    t.equal(before.length, ALL);
    const run = await verify(objects.names);
    t.equal(run.code, 0, run.stdout + run.stderr);
    const where = `on 2 of 2 API servers (${first}, ${second})`;
    t.match(run.stdout, `${objects.kind.name}: ${OBJECTS} objects current ${where}, 0 changed, watermark `);
    t.match(run.stdout, /storage version "v1", encryption configuration sha256:[0-9a-f]{64}/);
    t.match(run.stdout, /secrets: .*storageVersionHash "[^"]+", encryption configuration sha256:[0-9a-f]{64}/);
    t.match(run.stdout, /verified: all objects of 3 of 3 resources are current: .* objects current, 0 changed/);
    t.same(await objects.stored(), before, "the same bytes and revisions");
  },
);

await t.test("verify names the one object under the old key, which it has repaired", async (t) => {
  await restartWith(cluster, ["key0", "key1"]);
  await restartWith(cluster, ["key1", "key0"]);
  const rewritten = await cluster.ksvm([
    "reencrypt",
    "--verify",
    "--settle",
    "1s",
    "--apiserver-endpoints",
    `${first},${second}`,
    ...objects.names,
  ]);
  t.equal(rewritten.code, 0, rewritten.stdout + rewritten.stderr);
  t.same(await objects.keys(), { [storedWith("key1")]: ALL });
  t.match(rewritten.stdout, `secrets: ${OBJECTS} objects current on 2 of 2 API servers`, "by reencrypt --verify");

  // As a write that was held until the run was over.
  await restartWith(cluster, ["key0", "key1"]);
  const { namespace } = objects;
  const late = { type: MERGE_PATCH, body: { metadata: { labels: { late: "yes" } } } };
  await cluster.api.patch(SECRETS, { name: "o3", namespace }, late);
  await restartWith(cluster, ["key1", "key0"]);
  t.same(await objects.keys(), { [storedWith("key0")]: 1, [storedWith("key1")]: ALL - 1 });

  const run = await verify(["-o", "json", ...objects.names]);
  t.equal(run.code, 3, run.stdout + run.stderr);
  const found = linesOf(run.stdout, "verification").flatMap(({ changed, resource }) =>
    changed.map((object) => ({ resource, ...object })),
  );
  t.same(found, [{ resource: "secrets", name: "o3", namespace, server: first }]);
  t.match(linesOf(run.stdout, "notCurrent"), [{ resource: "secrets", name: "o3" }]);
  t.match(linesOf(run.stdout, "summary"), [{ counts: { changed: 1, notShown: 0 }, notCurrent: ["secrets"] }]);
  t.same(await objects.keys(), { [storedWith("key1")]: ALL }, "it has the new key now");

  const again = await verify(objects.names);
  t.equal(again.code, 0, again.stdout + again.stderr);
});

await t.test("verify does not count what another client writes at the same time", async (t) => {
  const kind = new TestKind("written");
  await cluster.createCrd(kind, { storage: "v1" });
  await cluster.createObjects(kind.resource("v1"), kind.objects(5, "v1"));
  const due = new Set<string>();
  const written: string[] = [];
  await objectWebhook(t, cluster, kind, {
    decide: async (name, isDryRun) => {
      if (!isDryRun && due.delete(name)) {
        written.push(name);
        const body = { metadata: { annotations: { turn: String(written.length) } } };
        await cluster.api.patch(kind.resource("v1"), { name, namespace: "default" }, { type: MERGE_PATCH, body });
      }
      return { allowed: true };
    },
  });
  for (const name of ["w1", "w3"]) {
    due.add(name);
  }
  const run = await verify([kind.name, "-o", "json"]);
  t.same(written.toSorted(), ["w1", "w3"], "each was written after ksvm had listed it, so that its write got a 409");
  t.equal(run.code, 0, run.stdout + run.stderr);
  const of = specKeyOf((await cluster.crd(kind)).metadata);
  t.match(linesOf(run.stdout, "verification"), [
    { outcome: "current", counts: { current: 5, changed: 0, notShown: 0 }, crd: of },
  ]);
});

await t.test("verify says that nothing is known of an object whose write is rejected", async (t) => {
  const kind = new TestKind("rejected");
  await cluster.createCrd(kind, { storage: "v1" });
  await cluster.createObjects(kind.resource("v1"), kind.objects(5, "v1"));
  await objectWebhook(t, cluster, kind, { decide: (name) => ({ allowed: name !== "w2" }) });
  const run = await verify([kind.name]);
  t.equal(run.code, 3, run.stdout);
  t.match(run.stdout, /4 objects current on 2 of 2 API servers .*, 0 changed, 1 not shown, watermark/);
  t.match(
    run.stderr,
    /objects of which nothing is known:\n {2}default\/w2: admission webhook "own.example.com" denied/,
  );
});

await t.test("verify says that an object which admission changes may not have been current", async (t) => {
  const kind = new TestKind("mutated");
  await cluster.createCrd(kind, { storage: "v1" });
  await cluster.createObjects(kind.resource("v1"), kind.objects(3, "v1"));
  let turn = 0;
  const stamp = () => [{ op: "add", path: "/metadata/labels", value: { stamp: String(++turn) } }];
  await objectWebhook(t, cluster, kind, {
    type: "Mutating",
    decide: (name) => ({ allowed: true, ...(name === "w1" ? { patch: stamp() } : {}) }),
  });
  const run = await verify([kind.name]);
  t.equal(run.code, 3, run.stdout);
  t.match(run.stdout, "default/w1 may not have been current: an admission webhook or policy changed it");
  t.match(run.stdout, /2 objects current on .*, 1 changed, watermark/);
});

await t.test(
  "verify shows nothing while the API servers encrypt differently, and names the one that differs",
  async (t) => {
    await restartWith(cluster, ["key0", "key1"], { indexes: [1] });
    const before = await objects.stored();
    const run = await verify(["secrets", "--convergence-timeout", "3s"]);
    t.equal(run.code, 1, run.stdout);
    t.match(run.stderr, new RegExp(`do not encrypt alike: ${second}.*\\[NotConverged\\]`));
    t.same(await objects.stored(), before);
    await restartWith(cluster, ["key1", "key0"], { indexes: [1] });
  },
);

await t.test("reencrypt --verify writes through each API server, and so finds one that uses the old key", async (t) => {
  await restartWith(cluster, ["key0", "key1"], { indexes: [1] });
  const { name } = objects.kind;
  const each = ["--settle", "1s", "--apiserver-endpoints", `${first},${second}`];
  const blind = await cluster.ksvm(["reencrypt", ...each, "--assume-config-rolled-out", name]);
  t.equal(blind.code, 0, "negative control: without the evidence it reports success");
  const run = await cluster.ksvm(["reencrypt", ...each, "--assume-config-rolled-out", "--verify", name]);
  t.equal(run.code, 3, run.stdout + run.stderr);
  t.equal(run.stdout.match(new RegExp(`was not current: a write through ${second}`, "g"))?.length, OBJECTS);
  t.match(run.stdout, /0 objects current on 2 of 2 API servers .*, 8 changed, .*assumed to be the same/);
  await restartWith(cluster, ["key1", "key0"], { indexes: [1] });
  t.equal((await verify([name])).code, 3, "it left them with the old key, which is why they are named");
  t.same((await objects.keysOfEach()).get(name), { [storedWith("key1")]: OBJECTS });
});

await t.test("verify with --expect-config shows something of that configuration alone", async (t) => {
  await restartWith(cluster, ["key1", "key0"]);
  const shown = await shownConfig(cluster, 0);
  const rewritten = await cluster.ksvm([
    "reencrypt",
    "--settle",
    "1s",
    "--apiserver-endpoints",
    `${first},${second}`,
    "secrets",
  ]);
  t.equal(rewritten.code, 0, rewritten.stderr);
  const meant = await verify(["--expect-config", shown, "secrets"]);
  t.equal(meant.code, 0, meant.stdout + meant.stderr);
  t.match(meant.stdout, `encryption configuration ${shown}`);
  const before = await objects.stored();
  const other = await verify(["--expect-config", "a".repeat(64), "--convergence-timeout", "3s", "secrets"]);
  t.equal(other.code, 1, other.stdout);
  t.match(other.stderr, /which is not sha256:a{64} of --expect-config.*\[NotConverged\]/);
  t.notMatch(other.stdout, "objects current");
  t.same(await objects.stored(), before);
});

await t.test("reencrypt --verify that is interrupted verifies nothing more", async (t) => {
  for (const when of [/secrets: re-encrypted/, /secrets: \d+ objects current/]) {
    const stop = new AbortController();
    const onStdout = (text: string): void => {
      if (when.test(text)) {
        stop.abort(new Interruption("SIGINT"));
      }
    };
    const flags = ["--settle", "1s", "--apiserver-endpoints", `${first},${second}`, "--verify"];
    const run = await cluster.ksvm(["reencrypt", ...flags, "secrets", "configmaps"], { signal: stop.signal, onStdout });
    t.ok(stop.signal.aborted, run.stdout);
    t.equal(run.code, 130, run.stdout);
    t.notMatch(run.stdout, /configmaps: \d+ objects current/);
    t.notMatch(run.stdout, /verified: all objects of 2 of 2/);
  }
});

await t.test("verify needs either names or --all: wrong usage", async (t) => {
  t.equal((await cluster.ksvm(["verify"])).code, 2);
  t.equal((await cluster.ksvm(["verify", "--all", "secrets"])).code, 2);
});
