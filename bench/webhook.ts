// How fast the webhook answers, against the same rule on controller-runtime: node bench/webhook.ts [--program dist] [-o json]
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import { issueSelfSigned } from "../test/certs/self-signed.ts";
import { renderTable } from "../src/cli/render/render-table.ts";
import { programVersion } from "../src/cli/shared/version.ts";
import { freePorts } from "../test/control-plane/ports.ts";
import { RunningProgram } from "../test/processes/program.ts";
import { SHIPPED_LIMITS } from "../test/webhook/shipped-limits.ts";
import { cpuSecondsOf, peakMegabytesOf } from "./process-usage.ts";
import { reviewOfSize } from "./review-fixture.ts";
import { runScript, say } from "./run-script.ts";
import { type BombReport, sendBombs, type Webhook } from "./webhook-bombs.ts";
import { type LoadResult, sendLoad } from "./webhook-load.ts";

const ROOT = join(import.meta.dirname, "..");
const GO_FOLDER = join(import.meta.dirname, "webhook-go");
/** Connections of the load that measures requests per second; latency is measured on one. */
const CONNECTIONS = 4;
/** Connections of the load after which peak memory is read once more, with the large review. */
const BURST = 32;
const SIZES = [2_000, 1_000_000];

interface Measurement {
  readonly who: string;
  readonly reviewBytes: number;
  readonly latency: LoadResult;
  readonly throughput: LoadResult;
  /** Milliseconds of CPU that the webhook itself used for a review. */
  readonly cpuMsPerReview: number;
}

await runScript(async (signal) => {
  const { values } = parseArgs({
    options: {
      program: { type: "string", default: join(ROOT, "src") },
      seconds: { type: "string", default: "6" },
      output: { type: "string", short: "o", default: "table" },
    },
  });
  const seconds = Number(values.seconds);
  const folder = mkdtempSync(join(tmpdir(), "ksvm-bench-webhook-"));
  const programs: RunningProgram[] = [];
  try {
    const goProgram = await buildGo();
    const { caPem, certPem, keyPem } = await issueSelfSigned({
      dnsNames: ["localhost"],
      ipAddresses: ["127.0.0.1"],
      now: new Date(),
      lifetimeMs: 86_400_000,
    });
    const [cert, key] = [join(folder, "tls.crt"), join(folder, "tls.key")];
    writeFileSync(cert, certPem);
    writeFileSync(key, keyPem, { mode: 0o600 });
    const [ownPort = 0, goPort = 0] = await freePorts(2);
    const start = async (who: string, port: number, command: readonly [string, ...string[]]): Promise<Webhook> => {
      const [name, ...args] = command;
      const env = { ...process.env, ...SHIPPED_LIMITS.environment };
      const program = new RunningProgram(name, args, { detached: true, env, stderr: "inherit" });
      programs.push(program);
      await untilListening(port, program);
      return { who, port, caPem, program, tellsStalls: name === process.execPath };
    };
    const server = join(import.meta.dirname, "webhook-server.mjs");
    const webhooks = [
      await start("ksvm", ownPort, [process.execPath, server, values.program, cert, key, String(ownPort)]),
      await start("controller-runtime", goPort, [goProgram, "-port", String(goPort), "-cert-dir", folder]),
    ];
    const measurements: Measurement[] = [];
    for (const size of SIZES) {
      const review = reviewOfSize(size);
      for (const webhook of webhooks) {
        say(`${webhook.who}: a review of ${review.length} bytes`);
        measurements.push(await measure(webhook, review, { seconds, signal }));
      }
    }
    const peakMegabytes = peaksOf(webhooks);
    for (const webhook of webhooks) {
      say(`${webhook.who}: ${BURST} connections`);
      await sendLoad(webhook, reviewOfSize(1_000_000), { connections: BURST, seconds, signal });
    }
    const burstPeakMegabytes = peaksOf(webhooks);
    const bombs: BombReport[] = [];
    for (const webhook of webhooks) {
      say(`${webhook.who}: bodies that are made to use memory`);
      bombs.push(await sendBombs(webhook, { seconds: seconds * 5, signal }));
    }
    const report = {
      date: new Date().toISOString(),
      ksvm: programVersion(),
      controllerRuntime: /controller-runtime (v\S+)/.exec(readFileSync(join(GO_FOLDER, "go.mod"), "utf8"))?.[1] ?? "",
      cpus: `${cpus().length} x ${cpus()[0]?.model.trim()}`,
      load: loadavg()[0] ?? 0,
      measurements,
      peakMegabytes,
      burstPeakMegabytes,
      bombs,
    };
    console.log(values.output === "json" ? JSON.stringify(report, undefined, 2) : render(report));
  } finally {
    await Promise.all(programs.map((program) => program.kill()));
    rmSync(folder, { recursive: true, force: true });
  }
});

async function measure(
  { who, program, ...target }: Webhook,
  review: Buffer,
  { seconds, signal }: { readonly seconds: number; readonly signal: AbortSignal },
): Promise<Measurement> {
  // Both get the same time to warm up: compilers, pools, heaps.
  await sendLoad(target, review, { connections: CONNECTIONS, seconds: seconds / 2, signal });
  const latency = await sendLoad(target, review, { connections: 1, seconds, signal });
  const before = cpuSecondsOf(program.pid);
  const throughput = await sendLoad(target, review, { connections: CONNECTIONS, seconds, signal });
  const cpuMsPerReview = ((cpuSecondsOf(program.pid) - before) * 1_000) / throughput.requests;
  return { who, reviewBytes: review.length, latency, throughput, cpuMsPerReview };
}

function peaksOf(webhooks: readonly Webhook[]): Readonly<Record<string, number>> {
  return Object.fromEntries(webhooks.map(({ who, program }) => [who, peakMegabytesOf(program.pid)]));
}

/** Go's own cache makes this a matter of a second from the second time on. */
async function buildGo(): Promise<string> {
  const output = join(ROOT, ".cache", "bench", "webhook-go");
  mkdirSync(join(output, ".."), { recursive: true });
  say("building the webhook to compare with (a minute or two, once)");
  const args = ["build", "-mod=readonly", "-trimpath", "-ldflags", "-s -w", "-o", output, "."];
  const env = { ...process.env, CGO_ENABLED: "0" };
  const { code } = await new RunningProgram("go", args, { cwd: GO_FOLDER, env, stdout: "ignore", stderr: "inherit" })
    .ended;
  if (code !== 0) throw new Error(`Cannot build the webhook to compare with: go build ended with code ${code}`);
  return output;
}

async function untilListening(port: number, program: RunningProgram): Promise<void> {
  const deadline = performance.now() + 30_000;
  for (;;) {
    const socket = connect({ host: "127.0.0.1", port });
    const isUp = await once(socket, "connect").then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (isUp) return;
    if (!program.isRunning || performance.now() > deadline) throw new Error(`Cannot start the webhook on port ${port}`);
    await sleep(50);
  }
}

interface Report {
  readonly date: string;
  readonly ksvm: string;
  readonly controllerRuntime: string;
  readonly cpus: string;
  readonly load: number;
  readonly measurements: readonly Measurement[];
  readonly peakMegabytes: Readonly<Record<string, number>>;
  readonly burstPeakMegabytes: Readonly<Record<string, number>>;
  readonly bombs: readonly BombReport[];
}

function render(report: Report): string {
  const header = [
    "WHO",
    "REVIEW BYTES",
    "P50 MS",
    "P99 MS",
    "REVIEWS/S",
    "CPU MS/REVIEW",
    "PEAK MIB",
    "PEAK MIB IN A BURST",
  ];
  const rows = report.measurements.map(({ who, reviewBytes, latency, throughput, cpuMsPerReview }) => [
    who,
    String(reviewBytes),
    latency.p50.toFixed(2),
    latency.p99.toFixed(2),
    throughput.requestsPerSecond.toFixed(0),
    cpuMsPerReview.toFixed(2),
    (report.peakMegabytes[who] ?? 0).toFixed(0),
    (report.burstPeakMegabytes[who] ?? 0).toFixed(0),
  ]);
  const versions = `ksvm ${report.ksvm}, controller-runtime ${report.controllerRuntime}, ${report.date.slice(0, 10)}`;
  const setting = `webhook and load generator (Node) share ${report.cpus}, load average ${report.load.toFixed(1)}`;
  const how = `TLS, keep-alive; latency on 1 connection, reviews/s on ${CONNECTIONS}; peak memory after both sizes, and after ${BURST} connections`;
  const bombHeader = ["WHO", "BODIES/S", "REVIEW P50 MS", "REVIEW LONGEST MS", "LONGEST STALL MS", "PEAK MIB"];
  const bombRows = report.bombs.map(
    ({ who, bodiesPerSecond, reviewP50, reviewLongest, longestStallMs, peakMegabytes }) => [
      who,
      bodiesPerSecond.toFixed(0),
      reviewP50.toFixed(1),
      reviewLongest.toFixed(0),
      longestStallMs?.toFixed(0) ?? "?",
      peakMegabytes.toFixed(0),
    ],
  );
  const bombs =
    "bodies that are made to use memory, up to 15.9 MiB, on 8 connections; reviews on another one beside them";
  const tables = [renderTable([header, ...rows]), "", bombs, "", renderTable([bombHeader, ...bombRows])];
  return [versions, setting, how, "", ...tables].join("\n");
}
