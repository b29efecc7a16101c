import { Readable } from "node:stream";
import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import { readMigrationLines } from "../../src/plan/migration-lines.ts";
import { findUnfinished } from "../../src/suspend/set-suspend.ts";

function migrationOf(name: string, metadata: object = {}): object {
  return {
    metadata: { name, uid: name, resourceVersion: "1", ...metadata },
    spec: { resource: { group: "example.com", version: "v1", resource: "widgets" } },
    status: { conditions: [{ type: "Running", status: "True" }] },
  };
}

/** A stand-in: one list of a migration that is carried out, and of one that a finalizer keeps. */
const client = {
  transport: {
    read: async (_: object, parse: (body: Readable) => Promise<unknown>) => {
      const items = [migrationOf("there"), migrationOf("kept", { deletionTimestamp: "2026-01-01T00:00:00Z" })];
      const list = { kind: "List", metadata: { resourceVersion: "1" }, items };
      return { body: await parse(Readable.from([Buffer.from(JSON.stringify(list))])) };
    },
  },
} as unknown as ApiClient;

await tap.test(
  "a migration that was deleted is neither shown nor waited for, whatever finalizer keeps it",
  async (t) => {
    const { lines } = await readMigrationLines(client, {});
    t.same(
      lines.map(({ name }) => name),
      ["there"],
    );
  },
);

await tap.test("a migration that was deleted is not suspended, whatever finalizer keeps it", async (t) => {
  const found = await findUnfinished(client, "widgets.example.com");
  t.same(
    found.map(({ metadata }) => metadata.name),
    ["there"],
  );
  await t.rejects(findUnfinished(client, "kept"), { code: "ResourceNotFound" });
});
