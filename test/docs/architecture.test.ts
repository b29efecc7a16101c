import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import tap from "tap";

const root = fileURLToPath(new URL("../../", import.meta.url));
const LARGEST_SHARE = 1 / 8;

/** The directories of the table in docs/architecture.md, from the bottom to the top. */
function listedDirectories(): readonly string[] {
  const text = readFileSync(join(root, "docs/architecture.md"), "utf8");
  return [...text.matchAll(/^\| `(src[a-z/-]*)` \|/gm)].map(([, directory]) => directory ?? "");
}

interface SourceFile {
  readonly path: string;
  readonly directory: string;
  readonly lines: number;
  /** The directories of what it imports, types included. */
  readonly imports: readonly string[];
}

function sourceFiles(): readonly SourceFile[] {
  const paths = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" });
  return paths.filter((path) => path.endsWith(".ts")).map((path) => sourceFile(join("src", path)));
}

function sourceFile(path: string): SourceFile {
  const text = readFileSync(join(root, path), "utf8");
  const directory = dirname(path);
  const relative = [...text.matchAll(/\b(?:from|import)\s*\(?\s*"(\.[^"]+)"/g)].map(([, target]) => target ?? "");
  const imports = relative.map((target) => dirname(normalize(join(directory, target))));
  return { path, directory, lines: text.split("\n").length, imports };
}

/** The imports that lead from a directory to one that stands after it. */
function upwardImports(files: readonly SourceFile[], order: readonly string[]): readonly string[] {
  return files.flatMap(({ path, directory, imports }) =>
    imports
      .filter((target) => order.indexOf(target) > order.indexOf(directory))
      .map((target) => `${path} imports from ${target}`),
  );
}

const files = sourceFiles();
const order = listedDirectories();

await tap.test("docs/architecture.md lists every directory of src", async (t) => {
  t.same([...new Set(files.map(({ directory }) => directory))].toSorted(), order.toSorted());
});

await tap.test("no import points up", async (t) => {
  t.same(upwardImports(files, order), []);
});

await tap.test("negative control: an import that points up is found", async (t) => {
  const [lowest = "", ...others] = order;
  const found = upwardImports(files, [...others, lowest]);
  t.ok(found.length > 0, `${found.length} were found`);
});

await tap.test("no directory holds more than an eighth of the code", async (t) => {
  const lines = new Map<string, number>();
  for (const file of files) {
    lines.set(file.directory, (lines.get(file.directory) ?? 0) + file.lines);
  }
  const all = [...lines.values()].reduce((sum, one) => sum + one, 0);
  t.same(
    [...lines].filter(([, count]) => count > all * LARGEST_SHARE),
    [],
  );
});

await tap.test("no file of src is longer than 300 lines", async (t) => {
  t.same(
    files.filter(({ lines }) => lines > 300).map(({ path, lines }) => `${path}: ${lines}`),
    [],
  );
});

/** These wait for a process, a socket or a file of this machine, or stamp what a user asks for: no simulated clock reaches them. */
const OWN_TIME: ReadonlySet<string> = new Set([
  "src/clock.ts",
  "src/certs/replicas.ts",
  "src/cli/commands/change-suspension.ts",
  "src/kube/connect/connector.ts",
  "src/kube/connect/credentials.ts",
  "src/kube/connect/exec-plugin.ts",
  "src/webhook/receive-body.ts",
  "src/webhook/server.ts",
  "src/webhook/serving-certificate.ts",
]);

await tap.test("ksvm takes the time from the clock that is passed in", async (t) => {
  const time = /\b(?:setTimeout|setInterval|AbortSignal\.timeout|performance\.now|Date\.now|hrtime)\b|\bnew Date\(\)/;
  const found = files.map(({ path }) => path).filter((path) => time.test(readFileSync(join(root, path), "utf8")));
  t.same(new Set(found), OWN_TIME);
});

await tap.test("proposals are named by their titles, not by a number that only we know", async (t) => {
  const named = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".ts"))
    .filter((path) => /\bseeds? \d/i.test(readFileSync(join(root, "src", path), "utf8")));
  t.same(named, []);
});

await tap.test("no two files of the tests have the same name", async (t) => {
  const paths = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" });
  const names = paths.filter((path) => path.endsWith(".ts")).map((path) => basename(path));
  t.same(
    names.filter((name, index) => names.indexOf(name) !== index),
    [],
  );
});
