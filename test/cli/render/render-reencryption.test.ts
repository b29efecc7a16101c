import tap from "tap";
import { NONE_SHOWN } from "../../../src/apiservers/encryption-evidence.ts";
import { describeSummary, describeUnchanged } from "../../../src/cli/render/render-reencryption.ts";
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

await tap.test("describeSummary() speaks of no key where no API server has an encryption configuration", async (t) => {
  const results = [resultOf({ done: 2, current: 0 })];
  const summary = { results, notDone: ["widgets"], encryption: NONE_SHOWN };
  t.match(describeSummary(summary), /^rewrote 1 of 2 resources: .*; not widgets$/);
  t.match(
    describeSummary({ ...summary, encryption: "sha256:ab" }),
    /^re-encrypted 1 of 2 resources with configuration sha256:ab: .*: the old key is still needed$/,
  );
});
