import t from "tap";
import { type IdentityChange, IdentityHistory } from "../../src/apiservers/identity-history.ts";

function historyOf(from: string, ...changes: readonly (readonly [IdentityChange["type"], string])[]): IdentityHistory {
  const history = new IdentityHistory(from);
  for (const [type, resourceVersion] of changes) {
    history.add({ type, resourceVersion });
  }
  return history;
}

await t.test("IdentityHistory knows that no API server joined or left, as far as the watch is", async (t) => {
  const history = historyOf("99", ["MODIFIED", "100"], ["BOOKMARK", "120"]);
  t.equal(history.to, "120");
  const rows = [
    ["99", "120", true, "all that was watched"],
    ["100", "110", true, "a part of it"],
    ["98", "120", false, "the watch began later"],
    ["99", "121", false, "the watch is not that far"],
    ["130", "120", false, "etcd counts from an older revision, as after a restore"],
    ["", "120", false, "not known since when"],
    ["99", "", false, "not known until when"],
  ] as const;
  for (const [from, to, expected, why] of rows) {
    t.equal(history.isQuiet(from, to), expected, why);
  }
});

await t.test("IdentityHistory keeps that an API server joined or left, also one that did both", async (t) => {
  const history = historyOf("99", ["ADDED", "105"], ["DELETED", "110"], ["MODIFIED", "120"]);
  t.notOk(history.isQuiet("99", "120"));
  t.ok(history.hasChangedSince("99"));
  t.ok(history.hasChangedSince("109"));
  t.notOk(history.hasChangedSince("110"), "after it left, nothing changed");
  t.ok(history.isQuiet("110", "120"));
  t.notOk(historyOf("99", ["DELETED", "100"]).isQuiet("99", "100"));
});

await t.test("IdentityHistory knows nothing of what the watch missed", async (t) => {
  const history = historyOf("99", ["MODIFIED", "120"]);
  history.missed("200");
  t.notOk(history.isQuiet("99", "110"), "also before that: it is not told any more");
  t.notOk(history.reachesBackTo("120"));
  t.ok(history.isQuiet("200", "200"));
  history.missed("");
  t.notOk(history.isQuiet("200", "200"), "a list without a resourceVersion");
});
