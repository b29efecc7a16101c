import tap from "tap";

import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { Pacer } from "../../src/retry/pacer.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { observePacing, observeRequests, observeRetries } from "../../src/controller/observe-requests.ts";
import { FakeClock } from "../fake-clock.ts";
import { configFor, kubeconfigFor, sendJson, sendStatus, startServer } from "../kube/local-server.ts";
import { Transport } from "../../src/kube/transport.ts";

const GET = { method: "GET", path: "/x" } as const;

async function countsOf({ requestDuration }: Metrics): Promise<readonly unknown[]> {
  const { values } = await requestDuration.get();
  return values
    .filter(({ metricName }) => metricName === "ksvm_request_duration_seconds_count")
    .map(({ labels: { method, code }, value }) => ({ method, code, value }));
}

await tap.test("observeRequests() measures every request by its method and status", async (t) => {
  // A real API server cannot be made to answer 503 and 401 on demand.
  const answers = [200, 503, 401, 200];
  const server = await startServer(t, (_, response) => {
    const status = answers.shift() ?? 500;
    return status === 200 ? sendJson(response, 200, {}) : sendStatus(response, status);
  });
  const metrics = new Metrics();
  const transport = server.transport({ observer: observeRequests(metrics) });
  await transport.request(GET);
  await t.rejects(transport.request({ method: "PATCH", path: "/x", body: {} }), ApiError);
  // It authenticates again and repeats the request: two requests.
  await transport.request(GET);
  t.same(await countsOf(metrics), [
    { method: "GET", code: 200, value: 2 },
    { method: "PATCH", code: 503, value: 1 },
    { method: "GET", code: 401, value: 1 },
  ]);
});

await tap.test("observeRequests() counts a request without an answer as code 0", async (t) => {
  const metrics = new Metrics();
  const observer = observeRequests(metrics);
  const transport = new Transport(configFor(kubeconfigFor("http://127.0.0.1:1")), { observer });
  t.teardown(() => transport.close());
  await t.rejects(transport.request(GET), TransportError);
  t.same(await countsOf(metrics), [{ method: "GET", code: 0, value: 1 }]);
});

await tap.test("observePacing() adds up what --max-qps makes requests wait", async (t) => {
  const metrics = new Metrics();
  const clock = new FakeClock();
  const pacer = new Pacer({ clock, maxInFlight: 1, maxQps: 2, onWait: observePacing(metrics) });
  await pacer.forEach([1, 2, 3], async () => undefined, new AbortController().signal);
  const { values } = await metrics.rateLimited.get();
  t.equal(values[0]?.value, 1, "two waits of half a second");
});

await tap.test("observeRetries() adds up only the waits that the API server asked for", async (t) => {
  const metrics = new Metrics();
  const observe = observeRetries(metrics);
  observe(new ApiError("GET /x", 429, {}), 1_000);
  observe(new ApiError("GET /x", 503, { retryAfter: "2" }), 2_000);
  observe(new ApiError("GET /x", 503, {}), 4_000);
  observe(new TransportError("GET /x", "https://server", new Error("reset")), 8_000);
  const { values } = await metrics.rateLimited.get();
  t.equal(values[0]?.value, 3);
});
