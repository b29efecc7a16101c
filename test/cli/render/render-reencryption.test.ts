import tap from "tap";
import { describeUnchanged } from "../../../src/cli/render/render-reencryption.ts";
import type { MigrationResult } from "../../../src/migrator/result.ts";

function resultOf(counts: { readonly done: number; readonly current: number }): MigrationResult {
  return { resource: "secrets", outcome: "migrated", counts } as unknown as MigrationResult;
}

await tap.test("describeUnchanged() says what was not rewritten, also beside one object that was", async (t) => {
  t.match(describeUnchanged([resultOf({ done: 0, current: 0 })]), /no object was rewritten: there is none/);
  t.match(describeUnchanged([resultOf({ done: 2, current: 2 })]), /no object was rewritten: this configuration/);
  t.match(
    describeUnchanged([resultOf({ done: 2, current: 2 }), resultOf({ done: 1, current: 0 })]),
    /2 of 3 objects were not rewritten/,
  );
  t.equal(describeUnchanged([resultOf({ done: 2, current: 0 })]), undefined);
});
