import { execFileSync, spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import tap, { type Test } from "tap";
import { Interruption } from "../../src/cli/shared/interruption.ts";
import { Signals } from "../../src/cli/shared/signals.ts";
import { FakeClock } from "../fake-clock.ts";
import { kubeconfigFor, sendJson, startServer } from "../kube/local-server.ts";
import { KSVM, RunningProgram, startKsvm } from "../processes/program.ts";

const MIB = 2 ** 20;

/**
 * As the program ends, does what requests and their answers do: makes objects that live for a moment and are not used
 * again. Tells on standard error how large the space for new objects is by then, in bytes: the smallest of several sizes.
 * V8 collects no new objects while it marks the whole heap (--separate-gc-phases): it adds pages instead, beyond any
 * limit, --max-semi-space-size too, and gives them back when the marking has ended.
 */
const LOAD = `
  import { getHeapSpaceStatistics } from "node:v8";
  process.on("exit", () => {
    const recent = [];
    let smallest = Infinity;
    for (let i = 1; i <= 500_000; i++) {
      recent[i % 20_000] = { name: "object" + i, labels: { a: i, b: [i, i + 1] }, text: String(i).repeat(4) };
      if (i % 50_000 !== 0) continue;
      const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space");
      smallest = Math.min(smallest, space.space_size);
    }
    process.stderr.write(String(smallest));
  });
`;

/** What Node tells on standard error, with a module loaded before the program. */
async function numberFrom(module: string, args: readonly string[]): Promise<number> {
  const preload = `data:text/javascript,${encodeURIComponent(module)}`;
  const { NODE_OPTIONS: _, ...env } = process.env;
  const { stderr } = await new RunningProgram(process.execPath, ["--import", preload, ...args], { env }).ended;
  // Anything else is a complaint about a flag that is unknown.
  if (!/^\d+$/.test(stderr)) throw new Error(stderr);
  return Number(stderr);
}

await tap.test("ksvm keeps the space for new objects at its initial size, whatever is allocated", async (t) => {
  const bytes = await numberFrom(LOAD, [KSVM, "--version"]);
  t.ok(bytes <= 4 * MIB, `${bytes} bytes`);
});

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

const VERSION = { gitVersion: "v1.36.0" };
const CRD = "widgets.example.com";

type Tap = Parameters<typeof startServer>[0] & { testdir(content?: Record<string, string>): string };

/** A server that answers /version and nothing else, and tells when it was asked for something else. */
async function silentAfterVersion(
  t: Tap,
): Promise<{ readonly flags: readonly string[]; readonly asked: Promise<void> }> {
  const { promise, resolve } = Promise.withResolvers<void>();
  // A real API server answers.
  const server = await startServer(t, ({ path }, response) =>
    path === "/version" ? sendJson(response, 200, VERSION) : resolve(),
  );
  const flags = ["--kubeconfig", join(t.testdir({ config: kubeconfigFor(server.url) }), "config")];
  return { flags, asked: promise };
}

await tap.test("main.ts ends cleanly on SIGHUP", async (t) => {
  const { flags, asked } = await silentAfterVersion(t);
  const run = startKsvm(t, ["plan", ...flags]);
  await asked;
  run.signal("SIGHUP");
  const { code, stderr } = await run.ended;
  t.equal(code, 130);
  t.match(stderr, /^Received SIGHUP, shutting down/);
});

/** An environment in which the process runs a script of a test before its own. */
function environmentWith(script: string): NodeJS.ProcessEnv {
  return {
    ...process.env,
    NODE_OPTIONS: `${process.env["NODE_OPTIONS"] ?? ""} --import=data:text/javascript,${script}`,
  };
}

/** Has the process hear a signal twice, before the first one has led to anything. */
function twice(signal: NodeJS.Signals): string {
  return `process.once('${signal}',()=>process.emit('${signal}','${signal}'));`;
}

/** What `ksvm plan` says where it gets a signal twice. */
async function stderrAfterTwo(t: Test, signal: NodeJS.Signals): Promise<string> {
  const { flags, asked } = await silentAfterVersion(t);
  const run = startKsvm(t, ["plan", ...flags], { env: environmentWith(twice(signal)) });
  await asked;
  run.signal(signal);
  const { code, stderr } = await run.ended;
  t.equal(code, 130);
  return stderr;
}

await tap.test("main.ts ends cleanly where GNU timeout sends SIGTERM twice", async (t) => {
  const stderr = await stderrAfterTwo(t, "SIGTERM");
  t.match(stderr, /^Received SIGTERM, shutting down \(send SIGTERM again to force\)\nerror: .* \[Interrupted\]\n$/);
});

await tap.test("main.ts ends cleanly when the reader of its stderr is gone", async (t) => {
  const { flags, asked } = await silentAfterVersion(t);
  const logging = ["--log-format", "json", "--log-level", "trace"];
  const run = startKsvm(t, ["migrate", CRD, "--standalone", ...logging, ...flags]);
  run.closeStderr();
  await asked;
  run.signal("SIGTERM");
  // What is not caught ends with 1 or 7.
  t.match(await run.ended, { code: 130 });
});

await tap.test("main.ts fails when the disk is full at stdout", { skip: !existsSync("/dev/full") }, async (t) => {
  const full = openSync("/dev/full", "w");
  t.teardown(() => closeSync(full));
  const { code, stderr } = await startKsvm(t, ["--version"], { stdout: full }).ended;
  t.equal(code, 1);
  t.match(stderr, /^error: Cannot write to stdout: .*ENOSPC.* \[OutputFailed\]\n$/);
});

const PLUGIN = `
import { writeFileSync } from "node:fs";
writeFileSync(process.argv[2], "");
setInterval(() => undefined, 1_000);
`;

await tap.test("main.ts ends on SIGINT, though the exec plugin hangs", async (t) => {
  const folder = t.testdir({ "plugin.mjs": PLUGIN });
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: process.execPath,
    args: [join(folder, "plugin.mjs"), join(folder, "runs")],
    interactiveMode: "Never",
  };
  const path = join(folder, "config");
  writeFileSync(path, kubeconfigFor("https://192.0.2.1:6443", { exec }));
  const run = startKsvm(t, ["plan", "--kubeconfig", path]);
  while (!existsSync(join(folder, "runs"))) await delay(20);
  run.signal("SIGINT");
  // The plugin never ends by itself.
  t.match(await run.ended, { code: 130 });
});

await tap.test("Signals takes what comes within a second of the first signal for the first one", async (t) => {
  const clock = new FakeClock();
  const signals = new Signals(clock);
  t.notOk(signals.interruption.aborted);
  t.notOk(signals.receive("SIGTERM"));
  t.match(signals.interruption.reason, new Interruption("SIGTERM"));
  t.notOk(signals.receive("SIGTERM"), "GNU timeout sends two");
  await clock.sleep(900);
  t.notOk(signals.receive("SIGINT"));
  await clock.sleep(200);
  t.ok(signals.receive("SIGTERM"), "counted from the first one, and not from the last one");
  t.match(signals.interruption.reason, { signal: "SIGTERM" });
});

await tap.test("Signals never forces an end by SIGHUP, however late it comes", async (t) => {
  const clock = new FakeClock();
  const signals = new Signals(clock);
  t.notOk(signals.receive("SIGHUP"));
  await clock.sleep(60_000);
  t.notOk(signals.receive("SIGHUP"));
  t.ok(signals.receive("SIGINT"));
});
