import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { breakGlass, clearCondition, inspectFreeze } from "../../src/freeze/break-glass.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { groupList, sendJson, sendStatus, startServer } from "../kube/local-server.ts";
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

await tap.test(
  "breakGlass() leaves the condition of a migration that has begun since the user was asked",
  async (t) => {
    const running = {
      metadata: { name: "bump", uid: "u", resourceVersion: "1" },
      spec: { resource: { group: "example.com", resource: "widgets" } },
    };
    const metadata = { resourceVersion: "1" };
    for (const items of [[], [running]]) {
      let found: readonly object[] = [];
      const written: unknown[] = [];
      // A stand-in: no real API server has a migration begin between two requests.
      const server = await startServer(t, ({ body, method, path }, response) => {
        const name = path.split("/").at(-1) ?? "";
        if (path === "/apis") return sendJson(response, 200, groupList("storagemigration.k8s.io/v1beta1"));
        if (name === "storageversionmigrations")
          return sendJson(response, 200, { kind: "List", metadata, items: found });
        if (!path.includes(`/customresourcedefinitions/${crdWith().metadata.name}`))
          return sendStatus(response, 404, { reason: "NotFound", details: { name } });
        if (method === "PATCH") written.push(body);
        return sendJson(response, 200, saying("True", "MigrationRunning"));
      });
      const retrier = new Retrier({ clock: new ManualClock(), random: () => 0.5 });
      const context = { client: new ApiClient(server.transport()), retrier, signal: new AbortController().signal };
      const findings = await inspectFreeze(context, crdWith().metadata.name);
      t.equal(findings.condition, "stuck");
      found = items;
      const [said] = await breakGlass(context, findings);
      t.match(said, items.length === 0 ? /^cleared condition/ : /^left condition .*run this again$/);
      t.equal(written.length, items.length === 0 ? 1 : 0);
    }
  },
);
