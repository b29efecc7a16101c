import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { HEARTBEAT_LIMIT_MS } from "../../src/api/migration.ts";
import { HASH_ANNOTATION } from "../../src/api/names.ts";
import { apply } from "../../src/trigger/apply.ts";
import { decide } from "../../src/trigger/decide.ts";
import { MigrationIndex } from "../../src/trigger/migration-index.ts";
import { builtIn, disagreeing, migration, NOW, situation, state } from "./situation.ts";

await tap.test("decide() disowns a migration that looks Pending when something changes: it may have run", async (t) => {
  const foreign = migration("Pending", "B", { isOurs: false });
  const differ = decide(situation(disagreeing(["A", "B"]), state(["Unknown"], "B"), [foreign]));
  t.same(differ.disown, [foreign]);
  t.same(differ.remove, []);
  const still = decide(situation(disagreeing(["A", "B"]), state(["Unknown", "A", "B"], "Unknown"), [foreign]));
  t.same(still.disown, [], "once is enough");

  const own = migration("Pending", "B");
  const old = state(["B"], "B", { heartbeat: NOW - HEARTBEAT_LIMIT_MS - 1 });
  for (const one of [foreign, own]) {
    const stale = decide(situation(builtIn("B"), old, [one]));
    t.same(stale.disown, [one], "nobody looked for too long");
    t.same(stale.adopt, [one], "it is taken for the one that is needed if it has not begun");
    t.equal(stale.create, undefined);
  }
  const left = decide(situation(builtIn("C"), state(["B"], "B"), [own]));
  t.same(left.remove, [own]);
  t.same(left.disown, [], "what is deleted needs no mark");
});

// A stand-in: the migration has to end unseen between two looks.
await tap.test(
  "apply() reads a migration again that it cannot disown, and the next look knows that it ended",
  async (t) => {
    const foreign = migration("Pending", "B", { isOurs: false });
    const ended = {
      apiVersion: "migration.k8s.io/v1alpha1",
      kind: "StorageVersionMigration",
      metadata: {
        name: foreign.name,
        uid: foreign.uid,
        resourceVersion: "20",
        annotations: { [HASH_ANNOTATION]: "B" },
      },
      spec: { resource: { group: "apps", version: "v1", resource: "deployments" } },
      status: { conditions: [{ type: "Succeeded", status: "True" }] },
    };
    const client = {
      patch: (_: unknown, __: unknown, { body }: { body: { metadata: { uid: string; resourceVersion?: string } } }) => {
        t.equal(body.metadata.uid, foreign.uid);
        return body.metadata.resourceVersion === undefined
          ? Promise.resolve(ended)
          : Promise.reject(new ApiError("PATCH", 409, { text: "the object has been modified" }));
      },
    } as unknown as ApiClient;
    const index = new MigrationIndex(() => undefined);
    const seen = situation(disagreeing(["A", "B"]), state(["B"], "B"), [foreign]);
    await t.rejects(apply({ client, index, heartbeatMs: 1 }, seen, decide(seen)), /modified/);
    const [known] = index.of("deployments.apps");
    t.match(known, { state: "Succeeded", hash: "B", resourceVersion: "20" });
    const next = decide({
      ...seen,
      state: state(["B"], "A"),
      observed: builtIn("B"),
      migrations: index.of("deployments.apps"),
    });
    t.equal(next.disown[0]?.resourceVersion, "20", "the next look disowns it as it is");
  },
);
