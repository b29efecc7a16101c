import { createHash } from "node:crypto";
import t, { type Test } from "tap";
import { LEASES, MERGE_PATCH } from "../../src/kube/resources.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster } from "./cluster.ts";
import { EncryptedObjects, optionsOf, replaceConfig, restartWith } from "./encrypted-objects.ts";

const OLD = ["key0", "key1"];
const NEW = ["key1", "key0"];
const OBJECTS = 2;
/** As something does all the time in a cluster: by that an API server tells, within a second, how far its watch is. */
const RENEWED = { namespace: "kube-system", name: "some-controller" };
const digest = createHash("sha256").update(optionsOf(0, NEW).encryptionConfig).digest("hex");

const cluster = await Cluster.start(t, { overrides: [optionsOf(0, OLD, { reloads: true })] });
await EncryptedObjects.create(cluster, OBJECTS);
await cluster.api.create(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: RENEWED });
const renewing = setInterval(() => {
  const body = { spec: { renewTime: new Date().toISOString().replace("Z", "000Z") } };
  // Also while the API server restarts.
  void cluster.api.patch(LEASES, RENEWED, { type: MERGE_PATCH, body }).catch(() => undefined);
}, 300);
t.teardown(() => clearInterval(renewing));

/** Someone installs an operator as soon as the command says so. */
async function createdDuring(
  args: readonly string[],
  { said, after = () => undefined }: { readonly said: string; readonly after?: () => void },
) {
  let creating: Promise<EncryptedObjects> | undefined;
  const run = await cluster.ksvm([...args, "--all", "--settle", "2s"], {
    onStdout: (text) => {
      if (text.includes(said)) {
        creating ??= EncryptedObjects.create(cluster, OBJECTS).finally(after);
      }
    },
  });
  return { run, objects: await creating };
}

/** With which keys etcd has the custom resources. */
async function keysOf(t: Test, objects: EncryptedObjects | undefined): Promise<unknown> {
  if (objects === undefined) return t.fail("no CRD was created meanwhile");
  return (await objects.keysOfEach()).get(objects.kind.name);
}

await t.test("reencrypt --all has a CRD that came while it waited for API servers", async (t) => {
  // Only then has the API server the new file.
  const after = (): void => replaceConfig(cluster, 0, NEW);
  const args = ["reencrypt", "--verify", "--expect-config", digest];
  const { objects, run } = await createdDuring(args, { said: "waiting for", after });
  t.equal(run.code, 0, run.stderr);
  t.same(await keysOf(t, objects), { [storedWith("key1")]: OBJECTS });
  const name = objects?.kind.name;
  t.match(run.stdout, `not among the resources as they were listed first: now ${name}`);
  t.match(run.stdout, new RegExp(`^${name}: ${OBJECTS} objects current`, "m"), "and it is verified");
  await restartWith(cluster, ["key1"], { indexes: [0] });
  t.ok(await objects?.areReadable(), "nothing needs the old key");
});

await t.test("verify --all has a CRD that came while it waited for late writes", async (t) => {
  const { objects, run } = await createdDuring(["verify"], { said: "in-flight writes" });
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, new RegExp(`^${objects?.kind.name}: ${OBJECTS} objects current`, "m"));
});
