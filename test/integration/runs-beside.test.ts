import t from "tap";
import { SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { REENCRYPT_ANNOTATION } from "../../src/api/names.ts";
import type { NewObject } from "../../src/kube/client.ts";
import { LEASES, MERGE_PATCH } from "../../src/kube/resources.ts";
import { leaseNameOf } from "../../src/lease/lease-acquire.ts";
import { DEFAULT_LEASE_NAMESPACE } from "../../src/lease/run-lease-ref.ts";
import { storedWith } from "../control-plane/encryption.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, readMigration, startController, untilState } from "./controller-fixture.ts";
import { EncryptedObjects, optionsOf, restartWith } from "./encrypted-objects.ts";

const OBJECTS = 40;
/** Nothing else needs the old key in the end. */
const ENCRYPTED = { resources: ["secrets"] };
const SECRETS = { group: "", version: "v1", resource: "secrets" };

const cluster = await Cluster.start(t, { overrides: [optionsOf(0, ["key0"], ENCRYPTED)] });
const { api, controlPlane } = cluster;
await installSystem(cluster);
const objects = await EncryptedObjects.create(cluster, OBJECTS);

/** Which of the Leases that are there are those of a run on the Secrets. */
async function heldIn(): Promise<readonly string[]> {
  const namespaces = [SYSTEM_NAMESPACE, DEFAULT_LEASE_NAMESPACE];
  const name = leaseNameOf("secrets");
  const found = await Promise.all(namespaces.map((namespace) => api.find(LEASES, { namespace, name })));
  return namespaces.filter((_, index) => found[index] !== undefined);
}

await t.test(
  "a run of the command line and one of the controller on one built-in resource lose nothing between them",
  { skip: unlessAtLeast(34, "API servers show which encryption configuration they use") },
  async (t) => {
    await restartWith(cluster, ["key1", "key0"], { indexes: [0], ...ENCRYPTED });
    const paced = { maxQps: 1, pageSize: 5 };
    startController(t, cluster, {
      guard: "policy",
      apiserverEndpoints: [controlPlane.apiservers[0]?.url ?? ""],
      ...paced,
    });
    const migration = await createMigration(cluster, SECRETS, { [REENCRYPT_ANNOTATION]: "true" });
    const isUnderWay = async () => ((await readMigration(cluster, migration)).status?.counts?.migrated ?? 0) > 0;
    await eventually(isUnderWay, "the controller rewrites them");

    let both: readonly string[] = [];
    const flags = ["--settle", "1s", "--max-qps", "10", "--page-size", "5", "-o", "json"];
    const running = cluster.ksvm(["reencrypt", ...flags, "secrets"]);
    await eventually(async () => (both = await heldIn()).length === 2, "each of them holds a Lease of its own");
    const written = { type: MERGE_PATCH, body: { metadata: { labels: { late: "yes" } } } };
    await api.patch(SECRETS, { name: `o${OBJECTS - 1}`, namespace: objects.namespace }, written);
    const run = await running;
    t.same(both, [SYSTEM_NAMESPACE, DEFAULT_LEASE_NAMESPACE]);
    t.equal(run.code, 0, run.stdout + run.stderr);
    const ended = await untilState(cluster, migration, ["Succeeded"], 600_000);
    const byController = ended.status?.counts?.migrated ?? 0;
    const [, byCommand = "0"] = /"type":"result".*"migrated":(\d+)/.exec(run.stdout) ?? [];
    t.ok(byController > 0 && Number(byCommand) > 0, `both wrote: ${byController} and ${byCommand}`);
    t.same((await objects.keysOfEach()).get("secrets"), { [storedWith("key1")]: OBJECTS });
    const secrets = (await objects.stored()).slice(0, OBJECTS);
    t.equal(Math.max(...secrets.filter(({ name }) => name !== `o${OBJECTS - 1}`).map(({ version }) => version)), 2);
    await restartWith(cluster, ["key1"], { indexes: [0], ...ENCRYPTED });
    const read = await api.list<NewObject & { readonly data: object }>(SECRETS, { namespace: objects.namespace });
    t.equal(read.length, OBJECTS);
    const password = Buffer.from("swordfish").toString("base64");
    t.ok(
      read.every(({ data }) => JSON.stringify(data) === JSON.stringify({ password })),
      "all read without the old key",
    );
  },
);
