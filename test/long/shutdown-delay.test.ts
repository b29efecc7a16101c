import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { IDENTITY_NAMESPACE } from "../../src/old/apiservers/control-plane-objects.ts";
import { LEASES } from "../../src/old/kube/resources.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { EncryptedObjects, optionsOf } from "../integration/encrypted-objects.ts";

const DELAY_MS = 20_000;
/** A run that does not wait for it is done by then. */
const WRITE_AFTER_MS = 12_000;
const DELAY = `${DELAY_MS / 1_000}s`;
const [FIRST, ENDING] = [0, 1];
const [OLD, NEW] = ["key1", "key2"];

const ending = {
  ...optionsOf(ENDING, [OLD, NEW]),
  extraArgs: [`--shutdown-delay-duration=${DELAY}`],
};
const cluster = await Cluster.start(t, { overrides: [optionsOf(FIRST, [NEW, OLD])] });
const { controlPlane } = cluster;
const objects = await EncryptedObjects.create(cluster, 3);
await controlPlane.addApiserver(ending);

async function identityLeases(): Promise<number> {
  const labelSelector = "apiserver.kubernetes.io/identity=kube-apiserver";
  return (await cluster.api.list(LEASES, { namespace: IDENTITY_NAMESPACE, labelSelector })).length;
}

/** Has the API server with the old key begin to end, which takes its identity Lease away. */
async function beginToEnd(t: Test): Promise<{ readonly ended: Promise<unknown> }> {
  await eventually(async () => (await identityLeases()) === 2, "both have an identity Lease");
  const ended = controlPlane.apiservers[ENDING]?.stop() ?? Promise.resolve();
  await eventually(async () => (await identityLeases()) === 1, "one of them is gone", 10_000, 100);
  t.pass("it deletes its identity Lease when it begins to end");
  return { ended };
}

async function createSecret(name: string, apiserver: number): Promise<number> {
  const body = { apiVersion: "v1", kind: "Secret", metadata: { name }, stringData: { of: name } };
  const request = { method: "POST", body, apiserver } as const;
  return (await controlPlane.request(`/api/v1/namespaces/${objects.namespace}/secrets`, request)).status;
}

async function keyOf(name: string): Promise<string | undefined> {
  const [secret] = await controlPlane.stored.objectsUnder(`/registry/secrets/${objects.namespace}/${name}`);
  return secret?.encryptedWith;
}

await t.test(
  "negative control: without --shutdown-delay an API server that ends writes with the old key",
  async (t) => {
    const { ended } = await beginToEnd(t);
    const run = await cluster.ksvm(["reencrypt", "--settle", "1s", "secrets"]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    t.equal(await createSecret("late", ENDING), 201, "it takes requests after that");
    t.equal(await keyOf("late"), storedWith(OLD));
    await ended;
  },
);

await t.test("reencrypt waits with --shutdown-delay until such an API server takes no request any more", async (t) => {
  await controlPlane.restartApiserver(ENDING, ending);
  const { ended } = await beginToEnd(t);
  const begunAt = performance.now();
  const written = delay(WRITE_AFTER_MS).then(() => createSecret("waited-for", ENDING));
  const run = await cluster.ksvm(["reencrypt", "--settle", "1s", "--shutdown-delay", DELAY, "secrets"]);
  const tookMs = performance.now() - begunAt;
  t.equal(run.code, 0, run.stdout + run.stderr);
  t.equal(await written, 201);
  t.ok(tookMs >= DELAY_MS, `it waited: ${tookMs} ms`);
  await t.rejects(createSecret("later", ENDING), "no request is taken any more");
  t.equal(await keyOf("waited-for"), storedWith(NEW));
  t.equal(await keyOf("late"), storedWith(NEW));
  await ended;
});
