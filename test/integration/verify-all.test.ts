import t from "tap";
import { MERGE_PATCH } from "../../src/kube/resources.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { EncryptedObjects } from "./encrypted-objects.ts";
import { withFewResources } from "./few-resources.ts";
import { accountFor } from "./rbac-account.ts";
import { renewLease } from "./renewed-lease.ts";

const OBJECTS = 4;
const SECRETS = { group: "", version: "v1", resource: "secrets" };

const cluster = await Cluster.start(t, { overrides: [withFewResources(["key1", "key0"])] });
const { controlPlane } = cluster;
await renewLease(t, cluster);

await t.test(
  "verify --all finds and repairs the one object under the old key and the one in the old version",
  { skip: unlessAtLeast(34, "API servers show which encryption configuration they use") },
  async (t) => {
    const objects = await EncryptedObjects.create(cluster, OBJECTS);
    const { namespace } = objects;
    const keys = async () => (await objects.keysOfEach()).get("secrets");
    const stale = new TestKind("stale");
    // As a write that was held until a rotation was over.
    await controlPlane.restartApiserver(0, withFewResources(["key0", "key1"]));
    const late = { type: MERGE_PATCH, body: { metadata: { labels: { late: "yes" } } } };
    await cluster.api.patch(SECRETS, { name: "o3", namespace }, late);
    await controlPlane.restartApiserver(0, withFewResources(["key1", "key0"]));
    await cluster.createStale(stale, 1);
    t.same(await keys(), { [storedWith("key0")]: 1, [storedWith("key1")]: OBJECTS - 1 });
    t.same(await cluster.storedAs(stale), { v1alpha1: 1 });

    const flags = ["--settle", "10ms", "--kubeconfig", await accountFor(cluster, "every-resource", ["--all"])];
    const run = await cluster.ksvm(["verify", "--all", ...flags]);
    t.equal(run.code, 3, run.stdout + run.stderr);
    const found = [...run.stdout.matchAll(/^(\S+): (\S+) was not current/gm)];
    // An API server that started with the old key may have written objects of its own.
    const named = found.map(([, ...words]) => words.join(" ")).filter((name) => !name.includes(" kube-"));
    t.same(named.toSorted(), [`secrets ${namespace}/o3`, `${stale.name} default/w0`].toSorted());
    const total = /all objects of (\d+) of (\d+) resources are current: \d+ objects current, (\d+) changed/;
    const [current = 0, of = 0, changed] = (total.exec(run.stdout) ?? []).slice(1).map(Number);
    t.ok(of > 40 && current < of, `${current} of ${of} resources had nothing to repair`);
    t.equal(changed, found.length, "each object that was repaired is named");
    t.notMatch(
      run.stdout + run.stderr,
      /forbidden|may not|sampled|warning/i,
      "the role that ksvm rbac --all prints is enough",
    );
    t.same(await keys(), { [storedWith("key1")]: OBJECTS }, "it has the new key now");
    t.same(await cluster.storedAs(stale), { v1: 1 }, "and the new version");

    const again = await cluster.ksvm(["verify", ...flags, ...objects.names, stale.name]);
    t.equal(again.code, 0, again.stdout + again.stderr);
    t.match(again.stdout, /verified: all objects of 4 of 4 resources are current: \d+ objects current, 0 changed/);
  },
);
