import { Readable } from "node:stream";
import { pino } from "pino";
import tap from "tap";
import { CRD_ANNOTATION } from "../../src/api/names.ts";
import { parseStorageState } from "../../src/api/parse-storage-state.ts";
import { prune } from "../../src/json/json-projection.ts";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { MigrationFeed } from "../../src/migrations/migration-feed.ts";
import { STATE_FIELDS, stateFactsOf } from "../../src/trigger/state-facts.ts";
import { Trigger } from "../../src/trigger/trigger.ts";
import { groupList, resourceList } from "../kube/local-server.ts";

const CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const STATES_PATH = "/apis/migration.k8s.io/v1alpha1/storagestates";
const NAME = "as.example.com";

/** An API server with one CRD that is not served yet, which changes every few milliseconds. */
class BusyApi {
  polls = 0;
  looks = 0;
  areWatchesDown = false;
  areStatesLarge = false;
  readonly #timers: NodeJS.Timeout[] = [];
  readonly transport = {
    server: "https://stand-in",
    request: (request: ApiRequest) => {
      if (this.areStatesLarge && request.path === STATES_PATH) {
        throw new TransportError(`GET ${STATES_PATH}`, "https://stand-in", new Error("it is larger than 64 MiB"));
      }
      return this.#request(request);
    },
    read: async (request: ApiRequest, read: (body: Readable) => Promise<unknown>) => {
      const { body, ...answer } = await this.#request(request);
      return { ...answer, body: await read(Readable.from([Buffer.from(JSON.stringify(body))])) };
    },
    readBytes: async (request: ApiRequest, _: number, read: (body: Buffer) => unknown) => {
      const { body, ...answer } = await this.#request(request);
      return { ...answer, body: read(Buffer.from(JSON.stringify(body))) };
    },
    stream: (request: ApiRequest) => this.#stream(request),
  } as unknown as Transport;

  end(): void {
    this.#timers.forEach((timer) => clearInterval(timer));
  }

  async #request({ method, path, signal }: ApiRequest) {
    await systemClock.sleep(2, signal);
    // A look at one resource of another group does not read the core group.
    this.polls += path === "/api/v1" ? 1 : 0;
    this.looks += path === `${CRDS_PATH}/${NAME}` ? 1 : 0;
    const metadata = { resourceVersion: "1" };
    const bodies: Readonly<Record<string, object>> = {
      "/version": {},
      "/apis": groupList("apiextensions.k8s.io/v1"),
      "/api/v1": resourceList("v1"),
      "/apis/apiextensions.k8s.io/v1": resourceList("apiextensions.k8s.io/v1"),
      [CRDS_PATH]: { kind: "List", items: [], metadata },
      "/apis/migration.k8s.io/v1alpha1/storageversionmigrations": { kind: "List", items: [], metadata },
      [STATES_PATH]: { kind: "List", items: [], metadata },
    };
    const body = bodies[path];
    if (body === undefined) {
      const name = path.split("/").at(-1) ?? "";
      const answer = { kind: "Status", reason: "NotFound", details: { name } } as const;
      throw new ApiError(`${method} ${path}`, 404, { answer });
    }
    return { status: 200, body, serverTime: Date.now() };
  }

  async #stream({ path, signal }: ApiRequest): Promise<Readable> {
    if (this.areWatchesDown) {
      throw new ApiError(`WATCH ${path}`, 503, { text: "no upgrade" });
    }
    const stream = new Readable({ read: () => undefined });
    const object = { metadata: { name: NAME, resourceVersion: "2" } };
    const push = (): void => void stream.push(`${JSON.stringify({ type: "MODIFIED", object })}\n`);
    const timer = path === CRDS_PATH ? setInterval(push, 5) : undefined;
    if (timer !== undefined) {
      this.#timers.push(timer);
    }
    signal?.addEventListener("abort", () => stream.destroy(), { once: true });
    return stream;
  }
}

// A stand-in: a CRD of a real API server does not change every five milliseconds, and the looks are counted here.
await tap.test("Trigger polls on time while a CRD changes all the time, and looks at that now and then", async (t) => {
  const api = new BusyApi();
  const client = new ApiClient(api.transport);
  const logger = pino({ level: "silent" });
  const trigger = new Trigger({
    client,
    clock: systemClock,
    logger,
    feed: new MigrationFeed({ client, clock: systemClock, logger }),
    intervalMs: 500,
    excludedGroups: [],
    findApiServers: () => Promise.resolve({ mode: "each", clients: [client] }),
  });
  const stop = new AbortController();
  const startedAt = performance.now();
  const ended = trigger.run(stop.signal);
  while (api.polls < 4 && performance.now() - startedAt < 10_000) {
    await systemClock.sleep(50);
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  t.ok(api.polls >= 4, `${api.polls} polls in ${seconds} s`);
  t.ok(api.looks > 0 && api.looks <= 5 * seconds + 2, `${api.looks} looks in ${seconds} s`);
  stop.abort(new Error("the test is over"));
  api.end();
  await ended;
});

// A stand-in: a real API server answers to watches where it answers to lists; a proxy before it may not.
await tap.test("Trigger polls where lists are answered and every watch fails, and says so", async (t) => {
  const api = new BusyApi();
  api.areWatchesDown = true;
  const client = new ApiClient(api.transport);
  const lines: string[] = [];
  const logger = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
  const trigger = new Trigger({
    client,
    clock: systemClock,
    logger,
    feed: new MigrationFeed({ client, clock: systemClock, logger }),
    intervalMs: 100,
    excludedGroups: [],
    findApiServers: () => Promise.resolve({ mode: "each", clients: [client] }),
  });
  const stop = new AbortController();
  const startedAt = performance.now();
  const ended = trigger.run(stop.signal);
  while (api.polls < 3 && performance.now() - startedAt < 10_000) {
    await systemClock.sleep(20);
  }
  t.ok(api.polls >= 3, `${api.polls} polls`);
  for (const what of ["CustomResourceDefinitions", "StorageVersionMigrations"]) {
    t.match(lines.join(""), new RegExp(`"resource":"${what}".*Cannot follow a resource; trying again`));
  }
  stop.abort(new Error("the test is over"));
  await ended;
});

// A stand-in: etcd holds no StorageStates of 64 MiB here.
await tap.test("Trigger reads StorageStates that are larger together than an answer may be", async (t) => {
  const api = new BusyApi();
  api.areStatesLarge = true;
  const client = new ApiClient(api.transport);
  const logger = pino({ level: "silent" });
  const trigger = new Trigger({
    client,
    clock: systemClock,
    logger,
    feed: new MigrationFeed({ client, clock: systemClock, logger }),
    excludedGroups: [],
    findApiServers: () => Promise.resolve({ mode: "each", clients: [client] }),
  });
  const stop = new AbortController();
  const startedAt = performance.now();
  const ended = trigger.run(stop.signal);
  while (trigger.report().polledAt === undefined && performance.now() - startedAt < 5_000) {
    await systemClock.sleep(20);
  }
  t.not(trigger.report().polledAt, undefined);
  stop.abort(new Error("the test is over"));
  api.end();
  await ended;
});

await tap.test("STATE_FIELDS has everything that the trigger reads of a StorageState", async (t) => {
  const crd = "stands for a record";
  const value = {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageState",
    metadata: { name: NAME, uid: "u", resourceVersion: "7", annotations: { [CRD_ANNOTATION]: crd, other: "x" } },
    status: {
      persistedStorageVersionHashes: ["a", "b"],
      currentStorageVersionHash: "b",
      lastHeartbeatTime: "2026-01-01T00:00:00Z",
    },
  };
  for (const one of [value, { ...value, status: undefined }, { ...value, status: { other: 1 } }]) {
    const [whole, kept] = [parseStorageState(one), parseStorageState(prune(one, STATE_FIELDS))];
    t.same(kept.ignored, whole.ignored);
    if (whole.object === undefined || kept.object === undefined) {
      t.fail("it can be read");
      return;
    }
    t.equal(kept.object.metadata.annotations?.[CRD_ANNOTATION], crd);
    t.same(stateFactsOf(kept.object), stateFactsOf(whole.object));
  }
});
