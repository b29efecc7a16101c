import { Readable } from "node:stream";
import { pino } from "pino";
import tap from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { MigrationIndex } from "../../src/trigger/migration-index.ts";
import type { Observer } from "../../src/trigger/observer.ts";
import { CrdSights } from "../../src/trigger/crd-sights.ts";
import { Reconciler } from "../../src/trigger/reconciler.ts";
import { NO_WATCH } from "../../src/trigger/trigger-watch.ts";
import { WorkQueue } from "../../src/trigger/work-queue.ts";
import { FakeClock } from "../fake-clock.ts";
import { builtIn } from "./situation.ts";

const NAME = "deployments.apps";
const FLOOD = 20_000;

/** An API server without StorageStates that takes every write. */
function request({ method, path, body }: ApiRequest) {
  const name = path.split("/").at(-1) ?? "";
  if (method === "GET" && name !== "storagestates") {
    throw new ApiError(`GET ${path}`, 404, { answer: { kind: "Status", reason: "NotFound", details: { name } } });
  }
  const list = { kind: "List", items: [], metadata: { resourceVersion: "1" } };
  const written = { ...(body as object), metadata: { name: NAME, uid: "u", resourceVersion: "2" } };
  return Promise.resolve({ status: 200, body: method === "GET" ? list : written, serverTime: 0 });
}

const read = async (asked: ApiRequest, parse: (body: Readable) => Promise<unknown>) => {
  const { body, ...answer } = await request(asked);
  return { ...answer, body: await parse(Readable.from([Buffer.from(JSON.stringify(body))])) };
};

// Stand-ins: what matters is which resource is looked at next, with a clock that stands still.
function reconcilerOf() {
  const clock = new FakeClock();
  const queue = new WorkQueue(clock);
  const looks: string[] = [];
  const created: string[] = [];
  const observation = { observed: [builtIn("A")], leftOut: [], unavailable: [], crds: new Map() };
  const observer = {
    everything: () => Promise.resolve(observation),
    resource: (name: string) => {
      looks.push(name);
      return Promise.resolve({ ...observation, observed: observation.observed.filter((one) => one.name === name) });
    },
  } as unknown as Observer;
  const asking = async (asked: ApiRequest) => {
    if (asked.method === "POST" && asked.path.endsWith("/storageversionmigrations")) created.push(asked.path);
    return request(asked);
  };
  const client = new ApiClient({ server: "https://stand-in", request: asking, read } as unknown as Transport);
  const index = new MigrationIndex((name) => reconciler.onMigration(name));
  const reconciler: Reconciler = new Reconciler({
    client,
    clock,
    logger: pino({ level: "silent" }),
    intervalMs: 240_000,
    crdMode: "manage",
    sharedClock: { now: () => clock.now(), refresh: () => Promise.resolve() },
    observer,
    queue,
    sights: new CrdSights(),
    watch: NO_WATCH,
    index,
  });
  return { clock, created, index, looks, queue, reconciler };
}

await tap.test("Reconciler looks at no resource that does not exist for the sake of its migrations", async (t) => {
  const { queue, reconciler } = reconcilerOf();
  const { signal } = new AbortController();
  await reconciler.poll(signal);
  for (let at = 0; at < FLOOD; at++) {
    reconciler.onMigration(`made-up-${at}.example.com`);
  }
  reconciler.onMigration(NAME);
  t.equal(queue.take(), NAME, "it is the first");
  t.equal(queue.take(), undefined, "and the only one");
});

await tap.test("Reconciler looks at what a poll found ahead of thousands that are due", async (t) => {
  const { clock, looks, queue, reconciler } = reconcilerOf();
  const { signal } = new AbortController();
  for (let at = 0; at < FLOOD; at++) {
    queue.add(`orphan-${at}.example.com`);
  }
  queue.add(NAME);
  await reconciler.poll(signal);
  t.equal(await reconciler.nextOfPoll(signal), true);
  t.same(looks, [], "it is looked at in a moment");
  clock.advance(5_000);
  await reconciler.poll(signal);
  t.equal(await reconciler.nextOfPoll(signal), true);
  t.same(looks, [NAME]);
  t.equal(queue.isDue(NAME), false);
});

await tap.test("Reconciler creates later and later what another client deletes each time", async (t) => {
  const { clock, created, index, queue, reconciler } = reconcilerOf();
  const { signal } = new AbortController();
  await reconciler.poll(signal);
  await reconciler.nextOfPoll(signal);
  t.equal(created.length, 1);
  while (clock.monotonic() < 600_000) {
    index.apply({ type: "deleted", uid: "u" });
    clock.advance(250);
    const name = queue.take();
    if (name !== undefined) await reconciler.lookAt(name, signal);
  }
  t.ok(created.length > 10 && created.length < 25, `${created.length} in ten minutes`);
  t.match(reconciler.report().waiting, [{ name: NAME, reason: /created/ }], "it says so");
});
