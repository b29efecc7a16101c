import tap from "tap";
import { request } from "undici";

import {
  buildHealthApp,
  type HealthCheck,
  addProcessMetrics,
  startHealthServer,
} from "../../src/observability/health.ts";
import { Metrics } from "../../src/observability/metrics.ts";

const { registry } = new Metrics();

function check(name: string, problem?: string): HealthCheck {
  return { name, check: () => problem };
}

const liveness = [check("ping"), check("trigger")];
const readiness = [check("ping"), check("webhook", "no serving certificate yet"), check("cache")];

const answers: readonly [path: string, status: number, body: string][] = [
  ["/livez", 200, "ok\n"],
  ["/livez?verbose", 200, "[+]ping ok\n[+]trigger ok\nlivez check passed\n"],
  ["/readyz", 503, "[+]ping ok\n[-]webhook failed: no serving certificate yet\n[+]cache ok\nreadyz check failed\n"],
  ["/healthz", 404, "served here: /livez, /readyz, /metrics\n"],
];

for (const [path, status, body] of answers) {
  await tap.test(`the health server answers ${path} with ${status}`, async (t) => {
    const app = buildHealthApp({ liveness, readiness, registry });
    t.teardown(() => app.close());
    const answer = await app.inject(path);
    t.equal(answer.statusCode, status);
    t.equal(answer.body, body);
    t.match(answer.headers["content-type"], /^text\/plain/);
  });
}

await tap.test("a check that throws has failed, and keeps no other from being run", async (t) => {
  const broken: HealthCheck = {
    name: "broken",
    check: () => {
      throw new Error("a fault");
    },
  };
  const app = buildHealthApp({ liveness: [broken, check("ping")], readiness, registry });
  t.teardown(() => app.close());
  const answer = await app.inject("/livez");
  t.equal(answer.statusCode, 503);
  t.equal(answer.body, "[-]broken failed: a fault\n[+]ping ok\nlivez check failed\n");
});

await tap.test("startHealthServer() serves metrics over HTTP, those of the process too", async (t) => {
  const metrics = new Metrics();
  addProcessMetrics(metrics.registry);
  metrics.leader.set(1);
  const server = await startHealthServer({
    host: "127.0.0.1",
    port: 0,
    liveness,
    readiness,
    registry: metrics.registry,
  });
  t.teardown(() => server.close());
  const answer = await request(`${server.url}/metrics`);
  const text = await answer.body.text();
  t.equal(answer.statusCode, 200);
  t.match(answer.headers["content-type"], /^text\/plain; version=/);
  t.match(text, /^ksvm_leader 1$/m);
  t.match(text, /^process_resident_memory_bytes \d+$/m);
});

await tap.test("startHealthServer() closes although a probe keeps its connection", async (t) => {
  const server = await startHealthServer({ host: "127.0.0.1", port: 0, liveness, readiness, registry });
  await (await request(`${server.url}/livez`)).body.dump();
  await server.close();
  await t.rejects(request(`${server.url}/livez`));
});
