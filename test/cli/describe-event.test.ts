import tap from "tap";

import {
  describeChanged,
  describeFailures,
  describeResult,
  progressLine,
} from "../../src/cli/render/describe-event.ts";
import { type Counts, Tally } from "../../src/old/migrator/rewrite/counts.ts";
import type { MigrationResult } from "../../src/old/migrator/result.ts";

function counts(fields: Partial<Counts> = {}): Counts {
  return { ...new Tally().counts, ...fields };
}

function result(fields: Partial<MigrationResult> = {}): MigrationResult {
  return { resource: "widgets.example.com", outcome: "migrated", failures: [], changedObjects: [], ...fields };
}

const results: readonly [result: MigrationResult, text: string][] = [
  [result({ outcome: "nothing-to-do", storedVersions: ["v2"] }), "nothing to do; storedVersions is [v2]"],
  [result({ outcome: "nothing-to-do" }), "nothing to do"],
  [
    result({ counts: counts({ done: 3, migrated: 2, gone: 1 }), storedVersions: ["v2"] }),
    "migrated in 12s: 2 rewritten, 1 deleted during the run; storedVersions is [v2]",
  ],
  [
    result({ outcome: "incomplete", counts: counts({ migrated: 1, failed: 2 }) }),
    "incomplete after 12s: 1 rewritten, 2 failed; nothing was pruned",
  ],
  [
    result({ outcome: "dry-run", counts: counts({ done: 7 }) }),
    "dry run: 7 objects would be accepted; nothing was changed",
  ],
  [
    result({ outcome: "dry-run", counts: counts({ done: 7, changed: 2 }) }),
    "dry run: 7 objects would be accepted (2 of them changed beyond their encoding); nothing was changed",
  ],
  [
    result({ outcome: "incomplete", isDryRun: true, counts: counts({ done: 20, migrated: 18, failed: 2 }) }),
    "dry run: 18 objects would be accepted, 2 rejected; nothing was changed",
  ],
  [
    result({ outcome: "incomplete", isResumed: true, counts: counts({ done: 20, newer: 19, failed: 1 }) }),
    "incomplete after 12s: 19 written since an earlier attempt began, 1 failed; nothing was pruned",
  ],
  [result({ encryption: "sha256:ab", counts: counts({ done: 2, migrated: 2 }) }), "re-encrypted in 12s: 2 rewritten"],
  [
    result({ outcome: "incomplete", encryption: "sha256:ab", counts: counts({ done: 2, migrated: 1, failed: 1 }) }),
    "incomplete after 12s: 1 rewritten, 1 failed; the old key is still needed",
  ],
];

for (const [value, text] of results) {
  await tap.test(`describeResult() says: ${text}`, (t) => {
    t.equal(describeResult(value, 12_345), text);
    t.end();
  });
}

await tap.test("describeFailures() and describeChanged() name objects and count those they do not name", (t) => {
  const failures = [{ namespace: "ns", name: "a", reason: "schema" }];
  const changedObjects = [{ name: "b" }];
  const value = result({ failures, changedObjects, counts: counts({ failed: 1, changed: 1 }) });
  t.same(describeFailures(value), ["  ns/a: schema"]);
  t.same(describeChanged(value), ["  b"]);
  const more = { ...value, counts: counts({ failed: 101, changed: 3 }) };
  t.same(describeFailures(more), ["  ns/a: schema", "  and 100 more"]);
  t.same(describeChanged(more), ["  b", "  and 2 more"]);
  t.same(describeFailures(result()), []);
  t.same(describeChanged(result()), []);
  t.end();
});

const lines: readonly [name: string, counts: Counts, elapsedMs: number, text: string][] = [
  ["nothing is known", counts(), 0, "100% 0/0"],
  ["it is not steady", counts({ done: 50, total: 100 }), 500, "50% 50/100"],
  ["it is steady", counts({ done: 500, total: 1_000 }), 5_000, "50% 500/1000, 100/s, 5s left"],
  ["some failed", counts({ done: 10, total: 10, failed: 2 }), 500, "100% 10/10, 2 failed"],
  ["more were done than estimated", counts({ done: 12, total: 10 }), 500, "100% 12/12"],
  ["nearly all is done", counts({ done: 999, total: 1_000 }), 500, "99% 999/1000"],
];

for (const [name, value, elapsedMs, text] of lines) {
  await tap.test(`progressLine() is "${text}" when ${name}`, (t) => {
    t.equal(progressLine(value, elapsedMs), text);
    t.end();
  });
}
