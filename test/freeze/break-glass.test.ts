import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { clearCondition } from "../../src/freeze/break-glass.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { ManualClock } from "../manual-clock.ts";

function saying(status: string, reason: string): CustomResourceDefinition {
  const conditions = [{ type: STORAGE_MIGRATING_CONDITION, status, reason }];
  return { ...crdWith(), status: { storedVersions: ["v2"], conditions } };
}

/** What a CRD is written as, and what is told of it. */
async function cleared(crd: CustomResourceDefinition): Promise<readonly [told: unknown, ...writes: unknown[]]> {
  const writes: unknown[] = [];
  const client = {
    get: () => Promise.resolve(crd),
    patch: (_resource: unknown, _ref: unknown, { body }: { body: unknown }) => Promise.resolve(writes.push(body)),
  } as unknown as ApiClient;
  const retrier = new Retrier({ clock: new ManualClock(), random: () => 0.5 });
  const { signal } = new AbortController();
  return [await clearCondition({ client, retrier, signal }, crd.metadata.name), ...writes];
}

await tap.test("clearCondition() lists what the migration that began may have pruned", async (t) => {
  t.match(await cleared(saying("True", "MigrationRunning")), [
    { listed: ["v1"] },
    { status: { conditions: [], storedVersions: ["v2", "v1"] } },
  ]);
});

await tap.test(
  "clearCondition() leaves the condition of a migration that has ended by then: it may be all that tells of a prune",
  async (t) => {
    t.strictSame(await cleared(saying("False", "MigrationFailed")), [undefined]);
  },
);
