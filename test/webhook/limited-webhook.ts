// The webhook and its health port in a process of their own, as `ksvm controller` has them: node limited-webhook.ts CERT KEY
// Prints `{"webhook":PORT,"health":PORT}`.
import { readFileSync } from "node:fs";
import "../../src/cli/small-heap.ts";
import pino from "pino";
import { addProcessMetrics, startHealthServer } from "../../src/observability/health.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { startWebhookServer } from "../../src/webhook/server.ts";
import { ServingCertificate } from "../../src/webhook/serving-certificate.ts";

const [certFile = "", keyFile = ""] = process.argv.slice(2);
const certificate = new ServingCertificate();
const problem = certificate.offer({ certPem: readFileSync(certFile, "utf8"), keyPem: readFileSync(keyFile, "utf8") });
if (problem !== undefined) throw new Error(problem);
const logger = pino({ level: "silent" });
const metrics = new Metrics();
addProcessMetrics(metrics.registry);
const own = { host: "127.0.0.1", port: 0, logger };
const webhook = await startWebhookServer({ ...own, certificate, metrics, drainMs: 0 });
const health = await startHealthServer({ ...own, liveness: [], readiness: [], registry: metrics.registry });
console.log(JSON.stringify({ webhook: webhook.port, health: Number(new URL(health.url).port) }));
