import { createHash } from "node:crypto";
import t, { type Test } from "tap";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster } from "./cluster.ts";
import { ENCRYPTED, EncryptedObjects, optionsOf, replaceConfig, restartWith } from "./encrypted-objects.ts";
import { withFewResources } from "./few-resources.ts";
import { renewLease } from "./renewed-lease.ts";

const OLD = ["key0", "key1"];
const NEW = ["key1", "key0"];
const OBJECTS = 2;
const digest = createHash("sha256").update(optionsOf(0, NEW).encryptionConfig).digest("hex");

const cluster = await Cluster.start(t, { overrides: [withFewResources(OLD, { reloads: true, resources: ENCRYPTED })] });
await EncryptedObjects.create(cluster, OBJECTS);
await renewLease(t, cluster);

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
  if (objects === undefined) return t.fail("no CRD was created in that time");
  return (await objects.keysOfEach()).get(objects.kind.name);
}

let created: EncryptedObjects | undefined;

await t.test("reencrypt --all has a CRD that came while it waited for API servers", async (t) => {
  const args = ["reencrypt", "--expect-config", digest];
  const { objects, run } = await createdDuring(args, {
    said: "waiting for",
    // Only then has the API server the new file.
    after: () => replaceConfig(cluster, 0, NEW),
  });
  t.equal(run.code, 0, run.stderr);
  t.same(await keysOf(t, objects), { [storedWith("key1")]: OBJECTS });
  const name = objects?.kind.name;
  t.match(run.stdout, `not among the resources as they were listed first: now ${name}`);
  created = objects;
});

await t.test("after that nothing needs the old key", async (t) => {
  await restartWith(cluster, ["key1"], { indexes: [0] });
  t.ok(await created?.areReadable());
});
