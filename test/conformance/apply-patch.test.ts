import { readFileSync } from "node:fs";
import t from "tap";
import { applyHunks, parsePatch } from "./apply-patch.ts";

const PATCH = `diff --git a/x/a.go b/x/a.go
index 1111111..2222222 100644
--- a/x/a.go
+++ b/x/a.go
@@ -1,3 +1,4 @@ func a() {
 one
-two
+2
+2b
 three
@@ -9,2 +10,1 @@
 nine
-ten
`;
const SOURCE = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";
const hunks = parsePatch(PATCH).get("x/a.go") ?? [];

await t.test("applyHunks() changes the lines that the patch names", async (t) => {
  t.equal(applyHunks("a.go", SOURCE, hunks), "one\n2\n2b\nthree\nfour\nfive\nsix\nseven\neight\nnine\n");
});

await t.test("applyHunks() says which line is not as the patch has it", async (t) => {
  t.throws(() => applyHunks("a.go", SOURCE.replace("three", "3"), hunks), {
    message: 'Cannot patch "a.go": line 3 is "3", expected "three"',
  });
  t.throws(() => applyHunks("a.go", `zero\n${SOURCE}`, hunks), /^Cannot patch "a.go": line/);
  t.throws(() => applyHunks("a.go", "one\ntwo\nthree\n", hunks), /line 9 is "", expected "nine"/);
});

await t.test("parsePatch() reads the patch of the report", async (t) => {
  const patch = readFileSync(new URL("../../docs/upstream/prune-after-failure.patch", import.meta.url), "utf8");
  const files = parsePatch(patch);
  const folder = "pkg/controller/storageversionmigrator";
  t.same([...files.keys()], [`${folder}/migrationrunner.go`, `${folder}/migrationrunner_test.go`]);
  t.equal([...files.values()].flat().length, patch.match(/^@@/gm)?.length);
});
