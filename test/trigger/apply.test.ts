import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { apply } from "../../src/trigger/apply.ts";
import { decide } from "../../src/trigger/decide.ts";
import { MigrationIndex } from "../../src/trigger/migration-index.ts";
import { builtIn, migration, situation, state } from "./situation.ts";

// A stand-in: the conflict has to come between two requests of one look.
await tap.test("apply() writes no StorageState where a migration could not be disowned", async (t) => {
  const requests: string[] = [];
  const client = {
    patch: ({ resource }: { resource: string }) => {
      requests.push(resource);
      return Promise.reject(new ApiError("PATCH", 409, { text: "the object has been modified" }));
    },
  } as unknown as ApiClient;
  const foreign = migration("Succeeded", "A", { isOurs: false });
  const rolledBack = situation(builtIn("B"), state(["A"], "A"), [{ ...foreign, hash: "B" }]);
  const decision = decide(rolledBack);
  t.equal(decision.disown.length, 1);
  const index = new MigrationIndex(() => undefined);
  await t.rejects(apply({ client, index, heartbeatMs: 1 }, rolledBack, decision), /modified/);
  t.same(new Set(requests), new Set(["storageversionmigrations"]), "it is decided again before anything rests on it");
});
