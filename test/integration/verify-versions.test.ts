import t from "tap";
import { CRDS, MERGE_PATCH } from "../../src/kube/resources.ts";
import { balance } from "./balancer.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { objectWebhook } from "./object-webhook.ts";

// A host name for each API server, so that each has an identity Lease of its own. Nothing is encrypted.
const cluster = await Cluster.start(t, { apiservers: 2, overrides: [{ hostname: "alpha" }, { hostname: "beta" }] });
const { controlPlane } = cluster;
const [first = "", second = ""] = controlPlane.apiservers.map(({ url }) => url);
const EACH = ["--apiserver-endpoints", `${first},${second}`];

/** As a user calls it. */
function verify(args: readonly string[]) {
  return cluster.ksvm(["verify", "--settle", "1s", ...args]);
}

/** A CRD with objects, all of them stored in v1. */
async function createCurrent(word: string, count: number): Promise<TestKind> {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1" });
  await cluster.createObjects(kind.resource("v1"), kind.objects(count, "v1"));
  return kind;
}

await t.test("verify names the one object in the old version of its CRD, which it has repaired", async (t) => {
  const kind = new TestKind("stale");
  await cluster.createStale(kind, 1);
  // Discovery runs ahead of the handler.
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  await cluster.createObjects(kind.resource("v1"), kind.objects(5, "v1", "later"));
  t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 5 });

  const run = await verify([kind.name, ...EACH]);
  t.equal(run.code, 3, run.stdout + run.stderr);
  t.match(run.stdout, `default/w0 was not current: a write through ${first} has repaired it`);
  t.equal(run.stdout.match(/was not current/g)?.length, 1, "no other one");
  t.match(run.stdout, /5 objects current on 2 of 2 API servers .*, 1 changed, watermark \d+; storage version "v1"/);
  t.same(await cluster.storedAs(kind), { v1: 6 });

  const again = await verify([kind.name, ...EACH]);
  t.equal(again.code, 0, again.stdout + again.stderr);
  t.match(again.stdout, /6 objects current on 2 of 2 API servers .*, 0 changed/);
});

await t.test("verify writes no object in a version that storedVersions lacks", async (t) => {
  const kind = new TestKind("unlisted");
  await cluster.createStale(kind, 3);
  const patch = { type: MERGE_PATCH, body: { status: { storedVersions: ["v1alpha1"] } } };
  await cluster.api.patch(CRDS, kind, patch, { subresource: "status" });
  const run = await verify([kind.name, ...EACH]);
  t.equal(run.code, 1, run.stdout + run.stderr);
  t.match(
    run.stdout + run.stderr,
    `Cannot write objects of "${kind.name}": storedVersions is [v1alpha1], without the storage version "v1"`,
  );
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });

  // An update of the CRD has the API server list it.
  await cluster.api.patch(CRDS, kind, { type: MERGE_PATCH, body: { metadata: { labels: { listed: "again" } } } });
  const again = await verify([kind.name, ...EACH]);
  t.equal(again.code, 3, again.stdout + again.stderr);
  t.same(await cluster.storedAs(kind), { v1: 3 });
});

await t.test("verify says where no API server shows how it encrypts, and verifies the version", async (t) => {
  const kind = await createCurrent("plain", 3);
  const run = await verify([kind.name, ...EACH]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, /3 objects current .*; storage version "v1", no API server shows an encryption configuration/);
  t.notMatch(run.stdout, /encrypts with configuration/);
});

await t.test("verify begins again where an API server restarts before its end", async (t) => {
  const kind = await createCurrent("restarted", 3);
  let [isArmed, restart] = [false, Promise.resolve()];
  await objectWebhook(t, cluster, kind, {
    decide: (_name, isDryRun) => {
      if (isArmed && !isDryRun) {
        isArmed = false;
        restart = controlPlane.restartApiserver(1, { hostname: "beta" });
      }
      return { allowed: true };
    },
  });
  isArmed = true;
  const run = await verify([kind.name, ...EACH]);
  await restart;
  t.equal(isArmed, false, "it restarted after the first write had begun");
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, "starting again: ");
  t.match(run.stdout, /3 objects current on 2 of 2 API servers .*, 0 changed/);
});

await t.test("verify says on how many API servers it was shown, where they cannot be reached one by one", async (t) => {
  const kind = await createCurrent("shared", 3);
  const balancer = await balance(t, controlPlane, [first, second]);
  const run = await verify([kind.name, "--kubeconfig", balancer.kubeconfig]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, `3 objects current on 1 of 2 API servers (any one of those behind ${balancer.url}), 0 changed`);
});

await t.test("migrate --verify verifies what it has migrated", async (t) => {
  const kind = new TestKind("verified");
  await cluster.createStale(kind, 4);
  const run = await cluster.migrate([kind.name, "--verify", ...EACH]);
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.match(run.stdout, /4 objects current on 2 of 2 API servers .*, 0 changed, .* was not looked at/);
  t.same(await cluster.storedAs(kind), { v1: 4 });
  t.equal((await cluster.migrate([kind.name, "--verify", "--dry-run"])).code, 2);
});

await t.test("migrate --verify ends with exit code 3 where an object may not have been current", async (t) => {
  const kind = new TestKind("stamped");
  await cluster.createStale(kind, 3);
  let turn = 0;
  const stamp = () => [{ op: "add", path: "/metadata/labels", value: { stamp: String(++turn) } }];
  await objectWebhook(t, cluster, kind, {
    type: "Mutating",
    decide: (name) => ({ allowed: true, ...(name === "w1" ? { patch: stamp() } : {}) }),
  });
  const run = await cluster.migrate([kind.name, "--verify", ...EACH]);
  t.equal(run.code, 3, run.stdout + run.stderr);
  t.match(run.stdout, "default/w1 may not have been current: an admission webhook or policy changed it");
  t.match(run.stdout, /2 objects current on .*, 1 changed, watermark/);
});
