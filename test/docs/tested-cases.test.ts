import { existsSync, readFileSync } from "node:fs";
import tap from "tap";

const root = new URL("../../", import.meta.url);
const text = readFileSync(new URL("docs/tested-cases.md", root), "utf8");
const ROW = /^\|([^|]*)\| `(test\/[^`]+)` \| ([^|]+) \|$/gm;
const rows = [...text.matchAll(ROW)].map(([, name = "", file = "", title = ""]) => ({
  name: name.trim(),
  file,
  title,
}));

const simulation = readFileSync(new URL("docs/simulation.md", root), "utf8");

await tap.test("docs/simulation.md names tests of what only the model can be asked", async (t) => {
  const named = [...simulation.matchAll(ROW)];
  t.ok(named.length >= 10);
  for (const [, , file = "", title = ""] of named) {
    t.ok(sourceOf(file)?.includes(title), `${file}: ${title}`);
  }
});

await tap.test("docs/security.md names tests that there are", async (t) => {
  const security = readFileSync(new URL("docs/security.md", root), "utf8");
  const titled = [...security.matchAll(/`(test\/[^`]+)`: (.+?)(?=<br>| \|)/g)];
  t.ok(titled.length >= 20);
  for (const [, file = "", title = ""] of titled) {
    t.ok(sourceOf(file)?.includes(title), `${file}: ${title}`);
  }
  for (const [, path = ""] of security.matchAll(/`(test\/[^`]+)`/g)) {
    t.ok(existsSync(new URL(path, root)), path);
  }
});

await tap.test("docs/tested-cases.md is read in full", async (t) => {
  const lines = text.split("\n").filter((line) => line.startsWith("|") && line.includes("test/"));
  t.ok(rows.length > 40);
  t.equal(rows.length, lines.length, "every row has a file and a title");
});

/** The source of a test file, `undefined` where there is none. */
function sourceOf(file: string): string | undefined {
  const url = new URL(file, root);
  return existsSync(url) ? readFileSync(url, "utf8") : undefined;
}

await tap.test("docs/tested-cases.md names tests that there are", async (t) => {
  for (const { file, title } of rows) {
    t.ok(sourceOf(file)?.includes(title), `${file}: ${title}`);
  }
});

await tap.test("docs/tested-cases.md names a case once, and each case has a test", async (t) => {
  const names = rows.map(({ name }) => name).filter((name) => name !== "");
  t.same(names.toSorted(), [...new Set(names)].toSorted());
});
