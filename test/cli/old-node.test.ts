import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { join } from "node:path";
import tap from "tap";

const MAIN = join(import.meta.dirname, "../../src/cli/main.ts");
const LINE =
  /^error: Cannot run on Node\.js \d+\.\d+\.\d+: ksvm needs 24 or newer, see https:\/\/nodejs\.org\/en\/download \[NodeUnsupported\]\n$/;

/** The first module of the program, as it is shipped, and instead of the program one that no old Node.js can read. */
function shipped(folder: string): string {
  mkdirSync(join(folder, "cli"));
  writeFileSync(join(folder, "package.json"), '{"type":"module"}');
  const main = join(folder, "cli/main.js");
  writeFileSync(main, stripTypeScriptTypes(readFileSync(MAIN, "utf8")).replace("./start.ts", "./start.js"));
  writeFileSync(
    join(folder, "cli/start.js"),
    'import { getCACertificates } from "node:tls";\nconsole.log(typeof getCACertificates);',
  );
  return main;
}

await tap.test("ksvm says in one line that a Node.js is too old", async (t) => {
  const main = shipped(t.testdir({}));
  const preload = "data:text/javascript,Object.defineProperty(process.versions,'node',{value:'20.20.2'})";
  const old = spawnSync(process.execPath, ["--import", preload, main], { encoding: "utf8" });
  t.match(old, { status: 1, stdout: "", stderr: LINE });
  const supported = spawnSync(process.execPath, [main], { encoding: "utf8" });
  t.match(supported, { status: 0, stdout: "function\n", stderr: "" }, "negative control");
});

/** A Node.js of this machine that is too old, where it has one. */
function oldNode(): string | undefined {
  return ["/usr/bin/node", "/usr/local/bin/node"].find(
    (path) =>
      existsSync(path) && Number(/^v(\d+)/.exec(execFileSync(path, ["--version"], { encoding: "utf8" }))?.[1]) < 24,
  );
}

const old = oldNode();
await tap.test(
  "ksvm says so on a real old Node.js",
  { skip: old === undefined && "needs an old Node.js" },
  async (t) => {
    const main = shipped(t.testdir({}));
    const run = spawnSync(old ?? "", [main], { encoding: "utf8", env: {} });
    t.match(run, { status: 1, stdout: "", stderr: LINE });
  },
);
