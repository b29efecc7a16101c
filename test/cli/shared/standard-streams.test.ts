import { closeSync, existsSync, openSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import tap, { type Test } from "tap";
import { kubeconfigFor, sendJson, startServer } from "../../kube/local-server.ts";
import { startKsvm } from "../../processes/program.ts";

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

/** Nobody takes what the process prints, so that it stays at its end. */
const STUCK = "process.stdout.write=()=>true;setInterval(()=>0,1000);";

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

await tap.test("main.ts ends cleanly where a closed terminal sends SIGHUP twice", async (t) => {
  const stderr = await stderrAfterTwo(t, "SIGHUP");
  t.match(stderr, /^Received SIGHUP, shutting down \(send SIGTERM to force\)\nerror: .* \[Interrupted\]\n$/);
});

await tap.test("main.ts ends cleanly where GNU timeout sends SIGTERM twice", async (t) => {
  const stderr = await stderrAfterTwo(t, "SIGTERM");
  t.match(stderr, /^Received SIGTERM, shutting down \(send SIGTERM again to force\)\nerror: .* \[Interrupted\]\n$/);
});

await tap.test("main.ts ends at once on a SIGTERM that comes more than a second after the first", async (t) => {
  const { flags, asked } = await silentAfterVersion(t);
  const run = startKsvm(t, ["plan", ...flags], { env: environmentWith(STUCK), timeoutMs: 60_000 });
  await asked;
  const { promise: interrupted, resolve } = Promise.withResolvers<void>();
  run.onOutput(() => run.stderr.includes("[Interrupted]") && resolve());
  run.signal("SIGTERM");
  await interrupted;
  await delay(1_100);
  t.ok(run.isRunning, "it would not end by itself");
  run.signal("SIGTERM");
  t.match(await run.ended, { code: 130 });
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
