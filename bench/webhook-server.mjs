// The webhook as a process of its own, for bench/webhook.ts: node bench/webhook-server.mjs FOLDER CERT KEY PORT
// FOLDER is dist/, or src/ with the cost of stripping its types.
//
// JavaScript, because Node's type stripping would add its own memory to what is measured.
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";

import pino from "pino";

const [folder = "", certFile = "", keyFile = "", port = ""] = process.argv.slice(2);
const ending = existsSync(join(folder, "webhook", "server.js")) ? "js" : "ts";
const load = (name) => import(resolve(folder, `${name}.${ending}`));
// As the program does, before anything large.
await load("cli/small-heap");
const [{ startWebhookServer }, { ServingCertificate }, { Metrics }] = await Promise.all(
  ["webhook/server", "webhook/serving-certificate", "observability/metrics"].map(load),
);

const certificate = new ServingCertificate();
const problem = certificate.offer({
  certPem: readFileSync(certFile, "utf8"),
  keyPem: readFileSync(keyFile, "utf8"),
});
if (problem !== undefined) throw new Error(problem);
const server = await startWebhookServer({
  host: "127.0.0.1",
  port: Number(port),
  certificate,
  metrics: new Metrics(),
  // What `ksvm` logs unless it is told otherwise.
  logger: pino({ level: "warn" }),
  drainMs: 0,
});
process.once("SIGTERM", () => void server.close());

// Tells the longest stall of its event loop since it was asked last, in milliseconds.
const delay = monitorEventLoopDelay({ resolution: 10 });
delay.enable();
process.on("SIGUSR2", () => {
  console.log(delay.max / 1e6);
  delay.reset();
});
