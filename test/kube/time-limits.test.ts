import pino from "pino";
import tap, { type Test } from "tap";
import { ServerLink } from "../../src/apiservers/pinned-transport.ts";
import { EventRecorder } from "../../src/controller/event-recorder.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { CRDS } from "../../src/kube/resources.ts";
import { watchObject } from "../../src/kube/watch.ts";
import { discoverMigratable } from "../../src/resources/discover.ts";
import { Cleanup } from "../../src/retry/cleanup.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { discover } from "../../src/trigger/discover.ts";
import { FakeClock } from "../fake-clock.ts";
import { sendJson, sendStatus, startServer } from "./local-server.ts";

/** A clock by which the time is always up: a time limit that is set by another one would hold its test up. */
class TimeIsUp extends FakeClock {
  /** Every time limit that was set, in milliseconds. */
  readonly limits: number[] = [];

  override timer(ms: number, onDue: () => void): () => void {
    this.limits.push(ms);
    const due = setImmediate(onDue);
    return () => clearImmediate(due);
  }

  override timeout(ms: number): AbortSignal {
    const limit = new AbortController();
    this.timer(ms, () => limit.abort(new DOMException("the time is up", "TimeoutError")));
    return limit.signal;
  }
}

// A stand-in: no real API server leaves everything unanswered on request.
const silentServer = (t: Test) => startServer(t, () => undefined);
const { signal } = new AbortController();
const GET = { method: "GET", path: "/x" } as const;

await tap.test("Transport limits a request by its clock, and what another() makes does so by the same", async (t) => {
  const server = await silentServer(t);
  const clock = new TimeIsUp();
  const transport = server.transport({ clock });
  const other = transport.another({ timeoutMs: 60_000 });
  t.teardown(() => other.close());
  for (const [asked, ms] of [
    [transport, 70_000],
    [other, 60_000],
  ] as const) {
    await t.rejects(asked.request(GET), { message: new RegExp(`time for an answer \\(${ms / 1_000} s\\) is up`) });
    t.equal(clock.limits.at(-1), ms);
  }
});

await tap.test("watchObject() limits the age and the silence of a watch by its clock", async (t) => {
  const server = await startServer(t, (_, response) => response.writeHead(200).flushHeaders());
  const clock = new TimeIsUp();
  const abort = new AbortController();
  let opened = 0;
  const onOpen = (): void => {
    opened++;
    if (opened === 3) abort.abort(new Error("enough"));
  };
  const watch = { resourceVersion: "1", signal: abort.signal, clock, onOpen };
  for await (const event of watchObject(server.transport(), CRDS, watch)) t.fail("no event came", { event });
  t.equal(opened, 3, "it was opened again and again");
  t.same(clock.limits.slice(0, 2), [320_000, 90_000]);
});

function hang(within: AbortSignal): Promise<void> {
  return new Promise((_, reject) => within.addEventListener("abort", () => reject(within.reason as Error)));
}

await tap.test("Cleanup limits what it undoes by its clock", async (t) => {
  const { signal: interrupted } = new AbortController();
  for (const { patience, ms } of [
    { patience: {}, ms: [30_000] },
    { patience: { cleanupPatience: { ms: 5_000_000, interrupted } }, ms: [5_000_000] },
    { patience: { cleanupPatience: { ms: 5_000_000, interrupted: AbortSignal.abort() } }, ms: [5_000_000, 30_000] },
  ]) {
    const clock = new TimeIsUp();
    const cleanup = new Cleanup({ clock, emit: () => undefined, ...patience });
    cleanup.defer("lift the freeze", "lift it by hand", hang);
    await t.rejects(
      cleanup.after(async () => undefined),
      { code: "CleanupFailed", message: /lift the freeze: no time is left for cleaning up; lift it by hand/ },
    );
    t.same(clock.limits, ms);
  }
});

await tap.test("EventRecorder limits the write of an Event by its clock", async (t) => {
  const server = await silentServer(t);
  const clock = new TimeIsUp();
  const lines: string[] = [];
  const logger = pino({ level: "debug" }, { write: (line: string) => void lines.push(line) });
  const recorder = new EventRecorder({ client: new ApiClient(server.transport()), clock, logger });
  const target = { apiVersion: "v1", kind: "Thing", metadata: { name: "a", uid: "u" } };
  recorder.record(target, { type: "Normal", reason: "Tried", message: "it" });
  await recorder.close();
  t.match(lines.join(""), /Cannot write an Event/);
  t.same(clock.limits, [10_000]);
});

await tap.test("ServerLink limits by its clock how long an API server may take to say which one it is", async (t) => {
  const server = await silentServer(t);
  const clock = new TimeIsUp();
  const transport = server.transport();
  const link = new ServerLink({ transport, clock, timeoutMs: 15_000, instanceTimeoutMs: 10_000 });
  t.teardown(() => link.transport.close());
  await t.rejects(link.askInstance(signal), { message: /GET \/metrics/ });
  t.same(clock.limits, [10_000]);
});

/** Lists the core group and one more, and answers for neither of them. */
function listingServer(t: Test) {
  const versions = [{ groupVersion: "g/v1", version: "v1" }];
  const groups = { kind: "APIGroupList", groups: [{ name: "g", versions, preferredVersion: { version: "v1" } }] };
  return startServer(t, ({ path }, response) => {
    if (path === "/api") return sendJson(response, 200, { kind: "APIVersions", versions: [] });
    if (path === "/apis") return sendJson(response, 200, groups);
    return path.includes("apiregistration") ? sendStatus(response, 404) : undefined;
  });
}

await tap.test("discoverMigratable() limits each answer by its clock, and names what did not come", async (t) => {
  const server = await listingServer(t);
  const clock = new TimeIsUp();
  const retrier = new Retrier({ clock, random: () => 0.5 });
  const client = new ApiClient(server.transport());
  const { unread } = await discoverMigratable({ client, clock, retrier, signal, discoveryPatienceMs: 0 });
  t.equal(unread.length, 2);
  t.same(clock.limits, [10_000, 10_000]);
});

await tap.test("discover() limits each answer by its clock, and names what did not come", async (t) => {
  const server = await listingServer(t);
  // The list of groups has its time.
  let isUp = false;
  const clock = new TimeIsUp();
  const patient: FakeClock = Object.assign(new FakeClock(), {
    timeout: (ms: number) => {
      const limit = isUp ? clock.timeout(ms) : signal;
      isUp = true;
      return limit;
    },
  });
  t.match(await discover(server.transport(), { clock: patient, signal }), {
    unavailable: [
      { group: "", version: "v1" },
      { group: "g", version: "v1" },
    ],
  });
  t.same(clock.limits, [5_000, 5_000]);
  await t.rejects(discover(server.transport(), { clock, signal }), { message: /GET \/apis/ });
});
