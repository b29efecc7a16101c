// The names that commands take: those that kubectl takes, and what is said of others.
import t from "tap";
import { CRDS } from "../api-client.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";

const cluster = await Cluster.start(t);

const kind = new TestKind("order");
await cluster.createStale(kind, 2);

/** The names that `plan` shows. */
async function planned(...names: readonly string[]): Promise<readonly string[]> {
  const { stdout } = await cluster.ksvm(["plan", ...names, "-o", "json"]);
  return stdout === "" ? [] : (JSON.parse(stdout) as { items: { name: string }[] }).items.map(({ name }) => name);
}

await t.test("commands take the names that kubectl takes", async (t) => {
  const singular = kind.kind.toLowerCase();
  const names = [
    kind.name,
    kind.plural,
    singular,
    kind.kind,
    `${singular}.example.com`,
    `${kind.plural}.v1.example.com`,
  ];
  await eventually(async () => (await planned(kind.plural)).length === 1, "discovery shows the resource");
  for (const name of names) t.same(await planned(name), [kind.name], name);
  t.same(await planned(...names), [kind.name], "a resource is planned once, whichever of its names are given");
  t.same(await planned("po", "deploy", "deployments.v1.apps", "ev"), ["pods", "deployments.apps", "events"]);
  const migrated = await cluster.migrate([kind.plural]);
  t.equal(migrated.code, 0, migrated.stderr);
  t.match(migrated.stdout, kind.name);
  t.same(await cluster.storedAs(kind), { v1: 2 });
  t.match(await cluster.ksvm(["unfreeze", kind.plural, "-y"]), {
    code: 0,
    stdout: `"${kind.name}" is not frozen: nothing to do\n`,
  });
  const unknown = await cluster.ksvm(["status", kind.plural]);
  t.match(unknown.stderr, `Cannot find a migration, a run or a freeze of "${kind.name}" [ResourceNotFound]`);
});

await t.test("plan --stale and --crds-only show what they are for", async (t) => {
  const [stale, unserved] = [new TestKind("stale"), new TestKind("unserved")];
  await cluster.createStale(stale, 1);
  await cluster.createStale(unserved, 1);
  await cluster.setVersions(unserved, { storage: "v1", unserved: ["v1", "v1alpha1"] });
  const crds = await planned("--crds-only");
  t.ok([kind.name, stale.name, unserved.name].every((name) => crds.includes(name)));
  t.notOk(crds.includes("secrets"));
  t.same((await planned("--stale")).toSorted(), [stale.name, unserved.name].toSorted());
  await eventually(async () => (await planned(stale.plural)).length === 1, "discovery shows the resource");
  t.same(await planned("--stale", kind.plural, stale.plural), [stale.name]);
  const { stdout } = await cluster.ksvm(["plan", "--stale"]);
  t.match(stdout, new RegExp(`${unserved.name} .* blocked +- +it serves no version; help: kubectl patch crd `));
});

await t.test(
  "a name that no resource has is an error with the names that are similar, and the others are migrated",
  async (t) => {
    const { code, stdout, stderr } = await cluster.migrate([`${kind.plural}.example.org`, kind.name, "--force"]);
    t.equal(code, 1);
    t.match(stderr, `Cannot find "${kind.plural}.example.org": did you mean ${kind.name}? [ResourceNotFound]`);
    t.match(stdout, kind.name);
    t.match(await cluster.ksvm(["plan", "pods/log"]), {
      code: 2,
      stderr:
        'error: Cannot use "pods/log": it is a subresource or an object, not a resource; to name the resource, leave out "/log" [Usage]\n',
    });
  },
);

await t.test("reencrypt takes the same names, and does the others where one is unknown", async (t) => {
  const args = ["reencrypt", "--assume-config-rolled-out"];
  const { code, stdout, stderr } = await cluster.ksvm([...args, "--unsafe-settle", "50ms", kind.kind, "cm", "secretz"]);
  t.equal(code, 1);
  t.match(stderr, 'Cannot find "secretz": did you mean secrets? [ResourceNotFound]');
  for (const name of [kind.name, "configmaps"]) {
    t.match(stdout, new RegExp(`^${name}: .*re-encrypted`, "m"));
  }
  const none = await cluster.ksvm([...args, "secretz"]);
  t.match(none, { code: 1, stdout: "" });
});

await t.test(
  "a name that two groups have is refused, and changes nothing; a full name is that resource alone",
  async (t) => {
    const manifest = kind.manifest({ storage: "v1" });
    const group = "example.net";
    await cluster.api.create(CRDS, {
      ...manifest,
      metadata: { name: `${kind.plural}.${group}` },
      spec: { ...manifest.spec, group },
    });
    const ambiguous = (): ReturnType<Cluster["ksvm"]> => cluster.migrate([kind.plural, "--force"]);
    await eventually(async () => (await planned(kind.plural)).length === 0, "discovery shows both");
    const before = await cluster.crd(kind);
    const { code, stderr } = await ambiguous();
    t.equal(code, 1);
    t.match(stderr, `Cannot tell which resource "${kind.plural}" is: `);
    t.match(stderr, `${kind.plural}.${group}`);
    t.match(stderr, kind.name);
    t.match(stderr, "[ResourceAmbiguous]");
    t.same(await cluster.crd(kind), before);
    t.equal((await cluster.migrate([kind.name, "--force"])).code, 0);
  },
);
