import tap, { type Test } from "tap";
import { followMigration } from "../../src/cli/commands/follow-migration.ts";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { FakeClock } from "../fake-clock.ts";
import { sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const CRD = {
  kind: "CustomResourceDefinition",
  metadata: { name: "widgets.example.com", uid: "c", resourceVersion: "1", generation: 1 },
  spec: {
    group: "example.com",
    names: { plural: "widgets", kind: "Widget" },
    versions: [
      { name: "v1alpha1", served: true, storage: false },
      { name: "v1", served: true, storage: true },
    ],
  },
  status: { storedVersions: ["v1"] },
};

function migrationWith(conditions: readonly object[], more: object = {}, crd?: string): object {
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "m", uid: "u", resourceVersion: "5", ...more },
    spec: { resource: { group: "example.com", version: "v1", resource: "widgets" } },
    status: { conditions, ...(crd === undefined ? {} : { crd }) },
  };
}

/**
 * Follows a migration where every watch fails. A stand-in: a real API server answers to watches where it answers to lists; a proxy before it may not.
 * @param listed the migration as each list shows it
 */
async function followed(
  t: Test,
  listed: () => object,
  storedVersions = ["v1"],
  { conditions = [], force = false }: { readonly conditions?: readonly object[]; readonly force?: boolean } = {},
) {
  const server = await startServer(t, ({ method, path, query }, response) => {
    if (method === "POST") {
      return sendJson(response, 201, migrationWith([]));
    }
    if (path.includes("customresourcedefinitions")) {
      return sendJson(response, 200, { ...CRD, status: { storedVersions, conditions } });
    }
    if (query.get("watch") !== null) {
      return sendStatus(response, 503, { message: "no upgrade" });
    }
    return sendJson(response, 200, { kind: "List", metadata: { resourceVersion: "7" }, items: [listed()] });
  });
  const notes: string[] = [];
  const client = new ApiClient(server.transport());
  const reporter = { event: () => undefined, note: (text: string) => void notes.push(text) };
  const signal = AbortSignal.timeout(25_000);
  const options = { client, clock: systemClock, reporter, force, signal };
  return { notes, end: followMigration(options, "widgets.example.com") };
}

await tap.test("ksvm migrate follows a migration to its end where every watch fails, and says so once", async (t) => {
  let lists = 0;
  const { end, notes } = await followed(t, () =>
    migrationWith(++lists < 3 ? [] : [{ type: "Succeeded", status: "True", reason: "Migrated" }], {}, "c/1"),
  );
  t.match(await end, { outcome: "migrated" });
  t.equal(notes.filter((note) => note.includes("no upgrade")).length, 1);
});

await tap.test("ksvm migrate believes no migration of a CRD that another migrator called Succeeded", async (t) => {
  const succeeded = [{ type: "Succeeded", status: "True", reason: "StorageVersionMigrationSucceeded" }];
  const storedVersions = ["v1alpha1", "v1"];
  const { end, notes } = await followed(t, () => migrationWith(succeeded), storedVersions);
  t.match(await end, { outcome: "incomplete", storedVersions });
  t.match(notes.at(-1), /^not migrated: .*storedVersions still lists v1alpha1: another migrator.*--standalone/);
  // Clean only because Kubernetes' own migrator has pruned, which did not succeed.
  const doubted = [{ type: "StorageMigrating", status: "False", reason: "MigrationFailed" }];
  const pruned = await followed(t, () => migrationWith(succeeded), ["v1"], { conditions: doubted });
  t.match(await pruned.end, { outcome: "incomplete", storedVersions: ["v1"] });
  t.match(pruned.notes.at(-1), /^not migrated: .*another migrator.*objects may be stored in v1alpha1, .*--repair$/);
  const proven = () => migrationWith(succeeded, {}, "c/1");
  t.match(await (await followed(t, proven, ["v1"], { conditions: doubted })).end, { outcome: "migrated" });
});

/** A migration that has succeeded. */
function says(reason: string, crd?: string): () => object {
  return () => migrationWith([{ type: "Succeeded", status: "True", reason }], {}, crd);
}

await tap.test("ksvm migrate of a clean CRD believes no migrator that leaves no proof of ksvm", async (t) => {
  const forced = { force: true };
  const { end, notes } = await followed(t, says(""), ["v1"], forced);
  t.match(await end, { outcome: "incomplete", storedVersions: ["v1"] });
  t.match(notes.at(-1), /^not migrated: .*another migrator.*no run of ksvm has proven .*--standalone --force$/);
  t.match(await (await followed(t, says("Migrated"))).end, { outcome: "incomplete" }, "not forced");
  t.match(await (await followed(t, says("NothingToDo"), ["v1"], forced)).end, { outcome: "incomplete" });
  t.match(await (await followed(t, says("NothingToDo"))).end, { outcome: "nothing-to-do" });
  t.match(await (await followed(t, says("Migrated", "c/1"), ["v1"], forced)).end, { outcome: "migrated" });
});

await tap.test("ksvm migrate says that a controller which manages no storedVersions left them", async (t) => {
  const conditions = [{ type: "Succeeded", status: "True", reason: "Migrated" }];
  const proven = (crd: string) => () => migrationWith(conditions, {}, crd);
  const { end, notes } = await followed(t, proven("c/1"), ["v1alpha1", "v1"]);
  t.match(await end, { outcome: "migrated", storedVersions: ["v1alpha1", "v1"] });
  t.match(notes.at(-1), /storedVersions still lists v1alpha1: .*--manage-stored-versions=false/);
  const changed = await followed(t, proven("c/0"), ["v1alpha1", "v1"]);
  t.match(await changed.end, { outcome: "incomplete" });
  t.match(changed.notes.at(-1), /the CRD has changed since/);
});

await tap.test(
  "ksvm migrate follows a migration no longer that was deleted, whatever finalizer keeps it",
  async (t) => {
    const { end } = await followed(t, () => migrationWith([], { deletionTimestamp: "2026-01-01T00:00:00Z" }));
    await t.rejects(end, { message: "Cannot follow migrations/m: it was deleted" });
  },
);

await tap.test(
  "ksvm migrate follows a migration to its end where watches are answered and tell of nothing",
  async (t) => {
    const clock = new FakeClock();
    // A proxy that keeps what it gets until the connection ends.
    const server = await startServer(t, ({ method, path, query }, response) => {
      if (method === "POST") {
        return sendJson(response, 201, migrationWith([]));
      }
      if (path.includes("customresourcedefinitions")) {
        return sendJson(response, 200, CRD);
      }
      if (query.get("watch") !== null) {
        return response.writeHead(200).end();
      }
      const items = [migrationWith([{ type: "Succeeded", status: "True", reason: "Migrated" }], {}, "c/1")];
      return sendJson(response, 200, { kind: "List", metadata: { resourceVersion: "7" }, items });
    });
    const client = new ApiClient(server.transport());
    const reporter = { event: () => undefined, note: () => undefined };
    const { signal } = new AbortController();
    await followMigration({ client, clock, reporter, force: false, signal }, "widgets.example.com");
    t.ok(clock.monotonic() < 120_000, `it was seen after ${clock.monotonic() / 1_000} s`);
  },
);
