import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { stringify } from "yaml";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { type ProgramEnd, RunningProgram } from "../processes/program.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";

const ROOT = join(import.meta.dirname, "../..");
const MODULES = join(ROOT, "node_modules");
const TSC = join(MODULES, "typescript/bin/tsc");

/** A strict project. Without `skipLibCheck` @kubernetes/client-node asks for the types of `ws`, which it does not bring. */
const STRICT = {
  noEmit: true,
  strict: true,
  skipLibCheck: true,
  module: "nodenext",
  target: "es2024",
  types: ["node"],
};

const cluster = await Cluster.start(t);

async function run(program: string, args: readonly string[], cwd: string): Promise<ProgramEnd> {
  const env = { ...process.env, KUBECONFIG: cluster.kubeconfig };
  // What tap has every Node load cannot load tsc.
  return await new RunningProgram(program, args, { cwd, env, withoutTap: true, timeoutMs: 300_000 }).ended;
}

async function mustRun(program: string, args: readonly string[], cwd: string): Promise<string> {
  const { code, stdout, stderr } = await run(program, args, cwd);
  if (code !== 0) throw new Error(`${program} ${args.join(" ")} ended with ${code}: ${stdout}${stderr}`);
  return stdout;
}

/** The tarball that npm publishes. Compiled apart: other tests compile to dist/ at the same time. @returns its path */
async function pack(folder: string): Promise<string> {
  const staged = join(folder, "staged");
  const { files } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { files: readonly string[] };
  for (const name of ["package.json", ...files.filter((file) => file !== "dist" && !file.startsWith("!"))]) {
    cpSync(join(ROOT, name), join(staged, name), { recursive: true });
  }
  await mustRun(process.execPath, [TSC, "-p", "tsconfig.build.json", "--outDir", join(staged, "dist")], ROOT);
  // As an earlier `make release` leaves it.
  mkdirSync(join(staged, "dist/release"));
  writeFileSync(join(staged, "dist/release/ksvm-0.0.0.tgz"), "");
  const packed = await mustRun("npm", ["pack", "--silent", "--pack-destination", folder], staged);
  return join(folder, packed.trim());
}

/** A project that has installed the package from its tarball; what the package depends on is that of this project. */
async function consumer(): Promise<string> {
  const folder = t.testdir({ node_modules: { ksvm: {} } });
  await mustRun("tar", ["-xzf", await pack(folder), "-C", "node_modules/ksvm", "--strip-components=1"], folder);
  for (const name of readdirSync(MODULES).filter((entry) => !entry.startsWith("."))) {
    symlinkSync(join(MODULES, name), join(folder, "node_modules", name));
  }
  writeFileSync(join(folder, "package.json"), '{"type":"module"}');
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: STRICT, files: ["main.ts"] }));
  return folder;
}

const folder = await consumer();

await t.test("the package holds the program, and no release", async (t) => {
  t.ok(existsSync(join(folder, "node_modules/ksvm/dist/cli/main.js")));
  t.notOk(existsSync(join(folder, "node_modules/ksvm/dist/release")));
});

/** The program of docs/for-operator-authors.md. */
function documented(): string {
  const [, program = ""] =
    /```ts\n(.*?)```/s.exec(readFileSync(join(ROOT, "docs/for-operator-authors.md"), "utf8")) ?? [];
  return program;
}

await t.test("the program of docs/for-operator-authors.md agrees with the types of the package", async (t) => {
  writeFileSync(join(folder, "main.ts"), documented());
  const { code, stdout } = await run(process.execPath, [TSC], folder);
  t.equal(code, 0, stdout);
  writeFileSync(join(folder, "main.ts"), 'import { planCrd } from "ksvm";\nawait planCrd(1, {});\n');
  const wrong = await run(process.execPath, [TSC], folder);
  t.match(wrong, { code: 1, stdout: /not assignable to parameter of type 'string'/ }, "negative control");
});

await t.test("the program of docs/for-operator-authors.md checks, plans and migrates", async (t) => {
  const kind = new TestKind("library");
  await cluster.createStale(kind, 7);
  writeFileSync(join(folder, "crd.yaml"), stringify(kind.manifest({ versions: ["v1"], storage: "v1" })));
  // The settle time of one second stands for nothing being under way.
  const program = documented().replace("{ ...cluster, onEvent", "{ ...cluster, settleMs: 1_000, onEvent");
  writeFileSync(join(folder, "main.ts"), program);
  const { code, stdout, stderr } = await run(process.execPath, ["main.ts"], folder);
  t.equal(code, 0, stdout + stderr);
  t.match(stdout, `${kind.name}: needs-migration: this file drops v1alpha1`);
  t.match(stdout, `${kind.name}: 7 objects to migrate\n`);
  t.match(stdout, /^frozen\n(.*\n)*pruned\n(.*\n)*unfrozen\n/m);
  t.match(stdout, `${kind.name}: migrated\n`);
  t.equal(stderr, "");
  t.same(await cluster.storedAs(kind), { v1: 7 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  const again = await run(process.execPath, ["main.ts"], folder);
  t.match(again, {
    code: 0,
    stdout: `${kind.name}: applicable: it drops v1alpha1, which storedVersions does not list\n`,
  });
});

await t.test("errors of the library are KsvmErrors with a code", async (t) => {
  const cases: readonly (readonly [call: string, code: string])[] = [
    ['planCrd("nothings.example.com", cluster)', "ResourceNotFound"],
    ['planCrd("configmaps", cluster)', "ResourceNotFound"],
    ['migrateCrd("nothings.example.com", cluster)', "ResourceNotFound"],
    ['migrateCrd("configmaps", cluster)', "ResourceNotFound"],
    ['checkCrd("kind: ConfigMap", cluster)', "ManifestInvalid"],
    ['checkCrd("{", cluster)', "ManifestInvalid"],
    ['planCrd("a.example.com", {})', "KubeconfigInvalid"],
    ['planCrd("a.example.com", { kubeconfig: "missing" })', "KubeconfigInvalid"],
  ];
  const lines = cases.map(
    ([call]) => `await ${call}.then(() => "nothing", (e) => e instanceof KsvmError ? e.code : e)`,
  );
  const program =
    'import { checkCrd, KsvmError, migrateCrd, planCrd } from "ksvm";\n' +
    `const cluster = { environment: process.env };\nconsole.log(JSON.stringify([${lines.join(",\n")}]));\n`;
  writeFileSync(join(folder, "errors.js"), program);
  const { stdout, stderr } = await run(process.execPath, ["errors.js"], folder);
  t.same(
    JSON.parse(stdout),
    cases.map(([, code]) => code),
    stderr,
  );
});

await t.test("an abort of the signal lifts the freeze before migrateCrd() ends", async (t) => {
  const kind = new TestKind("aborted");
  await cluster.createStale(kind, 50);
  const program = `
import { migrateCrd } from "ksvm";
const abort = new AbortController();
const onEvent = ({ type }) => { console.log(type); if (type === "frozen") abort.abort(new Error("enough")); };
await migrateCrd(${JSON.stringify(kind.name)}, { environment: process.env, signal: abort.signal, onEvent }).catch((error) => {
  console.log(error.message);
});
`;
  writeFileSync(join(folder, "abort.js"), program);
  const { code, stdout, stderr } = await run(process.execPath, ["abort.js"], folder);
  t.equal(code, 0, stderr);
  t.match(stdout, /^frozen\n(.*\n)*unfrozen\nenough\n$/);
  t.equal((await cluster.crd(kind)).metadata.annotations?.["ksvm.sigs.k8s.io/migrating"], undefined);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
});

await t.test("no other module of the package can be imported", async (t) => {
  const args = ["--input-type=module", "-e", 'await import("ksvm/dist/cli/start.js")'];
  const { code, stderr } = await run(process.execPath, args, folder);
  t.not(code, 0);
  t.match(stderr, /ERR_PACKAGE_PATH_NOT_EXPORTED/);
});
