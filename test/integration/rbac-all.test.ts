import t from "tap";
import { storedWith } from "../control-plane/encryption.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { Cluster } from "./cluster.ts";
import { EncryptedObjects } from "./encrypted-objects.ts";
import { withFewResources } from "./few-resources.ts";
import { NAMESPACE } from "./installation.ts";
import { accountFor } from "./rbac-account.ts";

const OBJECTS = 3;

const cluster = await Cluster.start(t, { overrides: [withFewResources(["key0"])] });

await t.test(
  "ksvm reencrypt --all works under exactly the roles that ksvm rbac --all prints",
  { skip: unlessAtLeast(34, "API servers show which encryption configuration they use") },
  async (t) => {
    const objects = await EncryptedObjects.create(cluster, OBJECTS);
    await cluster.controlPlane.restartApiserver(0, withFewResources(["key1", "key0"]));
    const kubeconfig = ["--kubeconfig", await accountFor(cluster, "every-resource", ["--all"])];
    const run = await cluster.ksvm(["reencrypt", "--all", "--settle", "10ms", ...kubeconfig]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.match(run.stdout, /re-encrypted (\d+) of \1 resources/);
    t.notMatch(run.stdout + run.stderr, /forbidden|may not list|sampled|warning/i, "nothing was refused");
    t.same((await objects.keysOfEach()).get("secrets"), { [storedWith("key1")]: OBJECTS });

    const elsewhere = await cluster.ksvm(["reencrypt", "secrets", "--lease-namespace", NAMESPACE, ...kubeconfig]);
    t.match(elsewhere, { code: 1, stderr: /may not create leases/ }, "negative control: a Lease in another namespace");
  },
);

await t.test("ksvm rbac needs either names or --all: wrong usage", async (t) => {
  for (const args of [[], ["--all", "secrets"], ["--all", "-o", "component"]]) {
    t.match(await cluster.ksvm(["rbac", ...args]), { code: 2, stdout: "" });
  }
});
