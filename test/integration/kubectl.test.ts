// kubectl beside ksvm: what an administrator applies, reads, waits for and clears away.
import t, { type Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { leaseName } from "../../src/migrator/run-lease.ts";
import type { ProgramEnd } from "../processes/program.ts";
import { LEASES } from "../api-client.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { SLOWLY, startController } from "./controller.ts";
import { TestKind } from "./crd-fixture.ts";
import { kubectlOf } from "./kubectl.ts";
import { INTERRUPTED_FLAGS, untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const kubectl = await kubectlOf(cluster);

/** kubectl, where it is to succeed without a warning. @returns what it prints */
async function succeed(t: Test, args: readonly string[], input?: unknown): Promise<string> {
  const { code, stdout, stderr } = await kubectl(args, input);
  t.same({ code, stderr }, { code: 0, stderr: "" }, `kubectl ${args.join(" ")}`);
  return stdout;
}

/** @returns the name of the migration */
async function createMigration(t: Test, { plural }: TestKind): Promise<string> {
  const manifest = {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { generateName: `${plural}.example.com-` },
    spec: { resource: { group: "example.com", version: "v1", resource: plural } },
  };
  const created = await succeed(t, ["create", "-f", "-"], manifest);
  const [, name = ""] = /^storageversionmigration\.migration\.k8s\.io\/(\S+) created\n$/.exec(created) ?? [];
  t.match(name, new RegExp(`^${plural}\\.example\\.com-\\w{5}$`));
  return name;
}

/** Cells of a table as kubectl prints it, a line for each row. */
function cellsOf(table: string): readonly (readonly string[])[] {
  return table
    .trimEnd()
    .split("\n")
    .map((line) => line.split(/ {2,}/));
}

await t.test("kubectl apply --server-side -k applies deploy/base and deploy/initializer, once and again", async (t) => {
  for (const folder of ["deploy/base", "deploy/initializer", "deploy/base"]) {
    const lines = (await succeed(t, ["apply", "--server-side", "-k", folder])).trimEnd().split("\n");
    t.ok(lines.length > 3 && lines.every((line) => line.endsWith(" serverside-applied")), folder);
  }
});

const root = t;
const migrated = new TestKind("waited");

await t.test("kubectl create starts a migration; kubectl wait, get and describe tell of it", async (t) => {
  await startController(root, cluster, { flags: SLOWLY });
  await cluster.createStale(migrated, 20);
  const name = await createMigration(t, migrated);
  const waited = await succeed(t, ["wait", "--for=condition=Succeeded", `migrations/${name}`, "--timeout=60s"]);
  t.equal(waited, `storageversionmigration.migration.k8s.io/${name} condition met\n`);
  t.same(storedVersionsOf(await cluster.crd(migrated)), ["v1"]);
  t.same(await cluster.storedAs(migrated), { v1: 20 });

  const [header, row] = cellsOf(await succeed(t, ["get", "migrations"]));
  t.same(header, ["NAME", "RESOURCE", "GROUP", "STATE", "PROGRESS", "REASON", "AGE"]);
  t.same(row?.slice(0, 6), [name, migrated.plural, "example.com", "Succeeded", "20/20", "Migrated"]);
  t.match(row?.[6], /^\d+s$/);

  const described = await succeed(t, ["describe", "migration", name]);
  const events = described.slice(described.indexOf("\nEvents:"));
  for (const reason of ["Frozen", "Converged", "Pruned", "Unfrozen", "Migrated"]) {
    t.match(events, new RegExp(`^ +Normal +${reason} +\\S+ +ksvm `, "m"));
  }
  t.match(await succeed(t, ["explain", "migrations.spec.resource"]), /The resource whose objects are rewritten/);
});

await t.test("kubectl ksvm is ksvm: its output and its exit codes", async (t) => {
  t.match(await succeed(t, ["plugin", "list"]), /\/kubectl-ksvm\n/);
  t.match(await succeed(t, ["ksvm", "status", migrated.name]), /Succeeded +20\/20/);
  t.match(await kubectl(["ksvm", "plan", "--nonsense"]), { code: 2, stdout: "", stderr: /unknown option/ });
});

function assertDenied(t: Test, { code, stderr }: ProgramEnd, kind: TestKind): void {
  t.equal(code, 1);
  t.match(
    stderr,
    new RegExp(`StorageVersionFrozen: cannot change the storage version of .*"${kind.name}" from "v1" to`),
  );
  t.match(stderr, new RegExp(`"ksvm status ${kind.name}" shows how far it is`));
}

await t.test("a frozen CRD: kubectl patch and apply are denied with the reason, annotate warns", async (t) => {
  const kind = new TestKind("frozen");
  const apply = ["apply", "--server-side", "-f", "-"];
  await succeed(t, apply, kind.manifest({ storage: "v1alpha1" }));
  await cluster.waitForVersion(kind, "v1alpha1");
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(200, "v1alpha1"));
  await succeed(t, apply, kind.manifest({ storage: "v1" }));
  const name = await createMigration(t, kind);
  const isFrozen = async (): Promise<boolean> => (await cluster.crd(kind)).metadata.annotations?.[MIGRATING] === "true";
  await eventually(isFrozen, "the CRD is frozen");

  const back = ["v1alpha1", "v1"].map((version, index) => ({
    op: "replace",
    path: `/spec/versions/${index}/storage`,
    value: version === "v1alpha1",
  }));
  assertDenied(t, await kubectl(["patch", "crd", kind.name, "--type=json", "-p", JSON.stringify(back)]), kind);
  assertDenied(t, await kubectl(apply, kind.manifest({ storage: "v1alpha1" })), kind);
  await succeed(t, apply, kind.manifest({ storage: "v1" }));
  await succeed(t, ["label", "crd", kind.name, "touched=true"]);
  t.ok(await isFrozen(), "applying the same again leaves the freeze alone");

  const lifted = await kubectl(["annotate", "crd", kind.name, `${MIGRATING}-`]);
  t.equal(lifted.code, 0);
  t.match(lifted.stderr, new RegExp(`^Warning: .*the freeze of CustomResourceDefinition ${kind.name} is lifted while`));
  await succeed(t, ["wait", "--for=condition=Failed", `migrations/${name}`, "--timeout=60s"]);
  const [, row] = cellsOf(await succeed(t, ["get", "migration", name]));
  t.match(row?.join(" "), / Failed .*\bFreezeLifted \d+s$/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});

await t.test("an administrator removes what an interrupted or failed run leaves", async (t) => {
  const kind = new TestKind("leftover");
  await cluster.createStale(kind, 40);
  const stop = new AbortController();
  const ended = cluster.migrate(["--standalone", ...INTERRUPTED_FLAGS, kind.name], { signal: stop.signal });
  await untilRewriting(cluster, kind, { ended });
  stop.abort(new Interruption("SIGINT"));
  t.equal((await ended).code, 130);
  const left = (): Promise<unknown> =>
    cluster.api.find(LEASES, { namespace: "kube-system", name: leaseName(kind.name) });
  t.ok(await left(), "its Lease has the checkpoint");
  await kubectl(["-n", "kube-system", "delete", "lease", "-l", "app.kubernetes.io/managed-by=ksvm"]);
  t.equal(await left(), undefined);
  t.match(await succeed(t, ["get", "leases", "-n", "kube-system"]), "apiserver-", "and no other Lease");
});
