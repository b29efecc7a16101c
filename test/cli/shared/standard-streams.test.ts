import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync } from "node:fs";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import tap from "tap";
import { endWithThisProcess } from "../../control-plane/watchdog.ts";
import { kubeconfigFor, sendJson, startServer } from "../../kube/local-server.ts";

const MAIN = fileURLToPath(new URL("../../../src/cli/main.ts", import.meta.url));
const VERSION = { gitVersion: "v1.36.0" };
const CRD = "widgets.example.com";

type Tap = Parameters<typeof startServer>[0] & { testdir(content?: Record<string, string>): string };

interface Started {
  readonly child: ChildProcess;
  readonly stderr: Readable;
  readonly ended: Promise<unknown>;
}

function start(args: readonly string[], stdout: "pipe" | number = "pipe"): Started {
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: ["ignore", stdout, "pipe"] });
  endWithThisProcess(child);
  const { stderr } = child;
  if (stderr === null) throw new Error("stderr is a pipe");
  return { child, stderr, ended: once(child, "exit").then(([code]: unknown[]) => code) };
}

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
  const started = start(["plan", ...flags]);
  const { child, ended } = started;
  const stderr = text(started.stderr);
  await asked;
  child.kill("SIGHUP");
  t.equal(await ended, 130);
  t.match(await stderr, /^Received SIGHUP, shutting down/);
});

await tap.test("main.ts ends cleanly when the reader of its stderr is gone", async (t) => {
  const { flags, asked } = await silentAfterVersion(t);
  const { child, ended } = start([
    "migrate",
    CRD,
    "--standalone",
    "--log-format",
    "json",
    "--log-level",
    "trace",
    ...flags,
  ]);
  child.stderr?.destroy();
  await asked;
  child.kill("SIGTERM");
  // What is not caught ends with 1 or 7.
  t.equal(await ended, 130);
});

await tap.test("main.ts fails when the disk is full at stdout", { skip: !existsSync("/dev/full") }, async (t) => {
  const full = openSync("/dev/full", "w");
  t.teardown(() => closeSync(full));
  const started = start(["--version"], full);
  const stderr = text(started.stderr);
  t.equal(await started.ended, 1);
  t.match(await stderr, /^error: Cannot write to stdout: .*ENOSPC.* \[OutputFailed\]\n$/);
});
