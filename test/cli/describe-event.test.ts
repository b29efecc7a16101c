import tap from "tap";

import {
  describeFailures,
  describeFieldVersions,
  describeResult,
  progressLine,
  type RunPurpose,
} from "../../src/cli/render/describe-event.ts";
import { type MigrationResult, newTally, type Tally } from "../../src/migrator/types.ts";

function tallyOf(fields: Partial<Tally> = {}): Tally {
  return { ...newTally(), ...fields };
}

function result(fields: Partial<MigrationResult> = {}): MigrationResult {
  return { resource: "widgets.example.com", outcome: "migrated", ...fields };
}

const results: readonly [result: MigrationResult, text: string, purpose?: RunPurpose][] = [
  [result({ outcome: "nothing-to-do", storedVersions: ["v2"] }), "nothing to do; storedVersions is [v2]"],
  [result({ outcome: "nothing-to-do" }), "nothing to do"],
  [
    result({ tally: tallyOf({ rewritten: 2, gone: 1 }), storedVersions: ["v2"] }),
    "migrated in 12s: 2 rewritten, 1 deleted during the run; storedVersions is [v2]",
  ],
  [
    result({ outcome: "incomplete", tally: tallyOf({ rewritten: 1, failed: 2 }) }),
    "incomplete after 12s: 1 rewritten, 2 failed; nothing was pruned",
  ],
  [
    result({ outcome: "incomplete", tally: tallyOf({ rewritten: 1, failed: 2 }), storedVersions: ["v1", "v2"] }),
    "incomplete after 12s: 1 rewritten, 2 failed; storedVersions is [v1,v2]",
  ],
  [
    result({ outcome: "dry-run", tally: tallyOf({ rewritten: 7 }), storedVersions: ["v1", "v2"] }),
    "dry run: 7 objects would be accepted; nothing was changed",
    "dry-run",
  ],
  [
    result({ outcome: "dry-run", tally: tallyOf({ rewritten: 7, changed: 2 }) }),
    "dry run: 7 objects would be accepted (2 of them changed beyond their encoding); nothing was changed",
    "dry-run",
  ],
  [
    result({ outcome: "incomplete", tally: tallyOf({ rewritten: 18, failed: 2 }) }),
    "dry run: 18 objects would be accepted, 2 rejected; nothing was changed",
    "dry-run",
  ],
  [result({ tally: tallyOf({ rewritten: 2 }) }), "re-encrypted in 12s: 2 rewritten", "reencrypt"],
  [
    result({ outcome: "incomplete", tally: tallyOf({ rewritten: 1, failed: 1 }) }),
    "incomplete after 12s: 1 rewritten, 1 failed; the old key is still needed",
    "reencrypt",
  ],
];

for (const [value, text, purpose] of results) {
  await tap.test(`describeResult() says: ${text}`, (t) => {
    t.equal(describeResult(value, 12_345, purpose), text);
    t.end();
  });
}

await tap.test("describeFailures() names objects and counts those it does not name", (t) => {
  const failures = [{ namespace: "ns", name: "a", reason: "schema" }];
  t.same(describeFailures(result({ tally: tallyOf({ failed: 1, failures }) })), ["  ns/a: schema"]);
  t.same(describeFailures(result({ tally: tallyOf({ failed: 101, failures }) })), ["  ns/a: schema", "  and 100 more"]);
  t.same(describeFailures(result()), []);
  t.end();
});

await tap.test("describeFieldVersions() names the versions that managedFields of a custom resource still hold", (t) => {
  const tally = tallyOf({ fieldVersions: { v1alpha1: 12, v1beta1: 3 } });
  t.equal(
    describeFieldVersions(result({ tally, storageVersion: "v1" })),
    "managedFields still name v1alpha1 (12 objects), v1beta1 (3 objects): have their clients apply them in v1 before " +
      "such a version is removed",
  );
  t.equal(describeFieldVersions(result({ tally })), undefined, "a built-in resource");
  t.equal(describeFieldVersions(result({ tally: tallyOf(), storageVersion: "v1" })), undefined);
  t.end();
});

const lines: readonly [name: string, tally: Tally, elapsedMs: number, text: string][] = [
  ["nothing is known", tallyOf(), 0, "100% 0/0"],
  ["it is not steady", tallyOf({ rewritten: 50, total: 100 }), 500, "50% 50/100"],
  ["it is steady", tallyOf({ rewritten: 500, total: 1_000 }), 5_000, "50% 500/1000, 100/s, 5s left"],
  ["some failed", tallyOf({ rewritten: 8, total: 10, failed: 2 }), 500, "100% 10/10, 2 failed"],
  ["more were done than estimated", tallyOf({ rewritten: 12, total: 10 }), 500, "100% 12/12"],
  ["nearly all is done", tallyOf({ rewritten: 999, total: 1_000 }), 500, "99% 999/1000"],
];

for (const [name, value, elapsedMs, text] of lines) {
  await tap.test(`progressLine() is "${text}" when ${name}`, (t) => {
    t.equal(progressLine(value, elapsedMs), text);
    t.end();
  });
}
