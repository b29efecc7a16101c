import tap from "tap";
import { DECODABLE_KINDS, TABLE_RELEASES } from "../../src/resources/decodable-kinds.ts";
import { KNOWN_RELEASES } from "../../src/resources/known-versions.ts";
import { tableText } from "../../tools/decodable-table.ts";

await tap.test("tableText() writes each kind with the spans of releases that decode it", (t) => {
  const decoded = new Map([
    ["v1.9.8", { v1: ["Pod"], "a/v1": ["Coming", "Going", "Back"] }],
    ["v1.10.1", { v1: ["Pod"], "a/v1": ["Going"] }],
    ["v1.11.0", { v1: ["Pod", "Late"], "a/v1": ["Back"] }],
  ]);
  const text = tableText(decoded);
  t.match(text, `  "1.9": "v1.9.8",\n  "1.10": "v1.10.1",\n  "1.11": "v1.11.0",\n`);
  t.match(
    text,
    `  "a/v1": {\n    "1.9-1.9": "Back Coming",\n    "1.11-1.11": "Back",\n    "1.9-1.10": "Going",\n  },\n` +
      `  "v1": {\n    "1.11-1.11": "Late",\n    "1.9-1.11": "Pod",\n  },\n`,
  );
  t.end();
});

await tap.test("the table has every release from 1.30 on, each by one patch, and spans of those alone", (t) => {
  const minors = KNOWN_RELEASES.map((release) => Number(release.slice(2)));
  t.equal(minors[0], 30);
  t.same(
    minors,
    minors.map((_, index) => 30 + index),
  );
  for (const [release, patch] of Object.entries(TABLE_RELEASES)) {
    t.ok(patch.startsWith(`v${release}.`), patch);
  }
  for (const [name, bySpan] of Object.entries(DECODABLE_KINDS)) {
    for (const span of Object.keys(bySpan)) {
      const [first, last] = span.split("-").map((release) => KNOWN_RELEASES.indexOf(release));
      t.ok(first !== undefined && last !== undefined && first >= 0 && first <= last, `${name} ${span}`);
    }
  }
  t.end();
});
