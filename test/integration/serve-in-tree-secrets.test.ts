import t from "tap";
import { IN_TREE_APISERVER } from "../../bench/in-tree.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "./cluster.ts";
import { installSystem } from "./controller-fixture.ts";
import { EncryptedObjects, optionsOf, restartWith } from "./encrypted-objects.ts";
import { createInTree, servedStatus, startServing, untilServed } from "./serve-in-tree-fixture.ts";

const OBJECTS = 5;
const SECRETS = { group: "", resource: "secrets" };
const cluster = await Cluster.start(t, {
  ...IN_TREE_APISERVER,
  apiservers: 2,
  overrides: [optionsOf(0, ["key0"]), optionsOf(1, ["key0"])],
});
const apiserverEndpoints = cluster.controlPlane.apiservers.map(({ url }) => url);
await installSystem(cluster);
const objects = await EncryptedObjects.create(cluster, OBJECTS);

async function keysOfSecrets(): Promise<Readonly<Record<string, number>> | undefined> {
  return (await objects.keysOfEach()).get("secrets");
}

await t.test("Secrets are encrypted with the new key once all API servers use it, and not before", async (t) => {
  await restartWith(cluster, ["key0", "key1"]);
  await restartWith(cluster, ["key1", "key0"], { indexes: [0] });
  const serving = startServing(t, cluster, { guard: "policy", apiserverEndpoints });
  await serving.until("serving");
  await createInTree(cluster, "rotated", SECRETS);
  await eventually(async () => (await servedStatus(cluster, "rotated")).state === "Running", "it has begun");
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  t.equal((await servedStatus(cluster, "rotated")).state, "Running", "one API server encrypts with the old key");
  t.same(await keysOfSecrets(), { [storedWith("key0")]: OBJECTS });

  await restartWith(cluster, ["key1", "key0"], { indexes: [1] });
  t.equal((await untilServed(cluster, "rotated")).state, "Succeeded");
  t.same(await keysOfSecrets(), { [storedWith("key1")]: OBJECTS });
  t.ok(await objects.areReadable());
});
