import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { KsvmError } from "../../src/errors.ts";
import { MIGRATIONS } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";
import { installSystem, SLOW, spawnReplica } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";
import { untilRewriting } from "./slow-run.ts";
import { installWebhook } from "./webhook-guard.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
const root = t;
await installSystem(cluster);
const webhook = await installWebhook(cluster);
t.teardown(() => webhook.uninstall());

async function migrationNames(): Promise<readonly string[]> {
  const { items } = await api.listMetadata(MIGRATIONS);
  return items.map(({ metadata }) => metadata.name);
}

const early = new TestKind("early");
await cluster.createStale(early, 3);

await t.test("ksvm migrate works from here where no controller runs, though the CRDs are installed", async (t) => {
  const run = await cluster.migrate([early.name]);
  t.equal(run.code, 0, run.stderr);
  t.match(run.stdout, /froze the storage version/);
  t.same(await migrationNames(), []);
});

await t.test("ksvm migrate creates a StorageVersionMigration and follows it where a controller runs", async (t) => {
  const replica = spawnReplica(root, cluster, "a", SLOW);
  await eventually(async () => replica.isLeading(), "a replica leads");
  const kind = new TestKind("follow");
  await cluster.createStale(kind, 60);
  const refused = await cluster.ksvm(["migrate", kind.name, "--via=status"]);
  t.match(refused, { code: 2, stderr: /migrate with --via=status: only this process does that; pass --standalone/ });
  const run = await cluster.ksvm(["migrate", kind.name, "-o", "json"]);
  t.equal(run.code, 0, run.stderr);
  const lines = run.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { type: string; message?: string; outcome?: string; counts?: object });
  t.match(lines[0], { type: "note", message: /created migrations\/follow.*-/ });
  t.ok(lines.some(({ type }) => type === "progress"));
  t.match(lines.at(-1), { type: "result", outcome: "migrated", counts: { migrated: 60 } });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  const again = await cluster.ksvm(["migrate", kind.name]);
  t.equal(again.code, 0);
  t.match(again.stdout, /nothing to do/);
  const forced = await cluster.ksvm(["migrate", "--force", kind.name]);
  t.match(forced.stdout, /60 already up to date/);
});

await t.test("Ctrl-C ends the following, and the migration goes on", async (t) => {
  const kind = new TestKind("ctrlc");
  await cluster.createStale(kind, 60);
  const ctrlC = new AbortController();
  const run = cluster.ksvm(["migrate", kind.name], { signal: ctrlC.signal });
  await untilRewriting(cluster, kind);
  ctrlC.abort(new KsvmError("Interrupted", "Interrupted"));
  const { code, stderr } = await run;
  t.equal(code, 130);
  t.match(stderr, /migrations\/ctrlc.* continues in the cluster.*\[Interrupted\]/);
  const isDone = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(kind)).length === 1;
  await eventually(isDone, "the migration ended", 40_000);
});

await t.test("ksvm migrate says why the controller failed, and --standalone works from here", async (t) => {
  const unserved = new TestKind("unserved");
  await cluster.createStale(unserved, 1);
  const before = await migrationNames();
  const alone = await cluster.migrate([unserved.name, "--standalone"]);
  t.equal(alone.code, 0, alone.stderr);
  t.match(alone.stdout, /froze the storage version/);
  t.same(await migrationNames(), before);
  const nobody = await cluster.ksvm(["migrate", "nobodies.example.com"]);
  t.equal(nobody.code, 1);
  t.match(nobody.stderr, /\[ResourceNotFound\]/);
});
