import { Readable } from "node:stream";
import { pino } from "pino";
import tap from "tap";
import { CRD_ANNOTATION } from "../../src/api/names.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { type CrdFacts, formatCrdRecord } from "../../src/trigger/crd-facts.ts";
import { CrdSights } from "../../src/trigger/crd-sights.ts";
import { MigrationIndex } from "../../src/trigger/migration-index.ts";
import type { Observation, Observer } from "../../src/trigger/observer.ts";
import { Reconciler } from "../../src/trigger/reconciler.ts";
import { NO_WATCH } from "../../src/trigger/trigger-watch.ts";
import { WorkQueue } from "../../src/trigger/work-queue.ts";
import { FakeClock } from "../fake-clock.ts";
import { crd, custom } from "./situation.ts";

const NAME = "widgets.example.com";
const { signal } = new AbortController();

/** What a look sees of a CRD: discovery shows its group or does not. */
function observationOf(facts: CrdFacts, isHidden: boolean): Observation {
  const hidden = { group: "example.com", version: "v1", reason: "503", isMissing: false, server: "https://a" };
  const crds = new Map([[NAME, facts]]);
  return { observed: isHidden ? [] : [custom(facts)], leftOut: [], unavailable: isHidden ? [hidden] : [], crds };
}

/**
 * A trigger in a cluster without StorageStates, or with one, and what it writes into the status of one.
 * @param sights what the process saw when it led before
 */
function reconcilerOf(observation: Observation, sights = new CrdSights(), state?: object) {
  const clock = new FakeClock();
  const persisted: (readonly string[])[] = [];
  const seen = { observation, areStatesDenied: false, isClockUnread: false };
  const request = async ({ method, path, body }: ApiRequest): Promise<unknown> => {
    const name = path.split("/").at(-1) ?? "";
    if (method === "GET" && name === NAME && state !== undefined) {
      return { status: 200, body: state, serverTime: 0 };
    }
    if (method === "GET" && path.includes("storagestates") && seen.areStatesDenied) {
      throw new ApiError(`GET ${path}`, 503, { answer: { kind: "Status", message: "later" } });
    }
    if (method === "GET" && name !== "storagestates") {
      throw new ApiError(`GET ${path}`, 404, { answer: { kind: "Status", reason: "NotFound", details: { name } } });
    }
    const { status } = (body ?? {}) as { status?: { persistedStorageVersionHashes: readonly string[] } };
    if (path.endsWith("/status") && status !== undefined) persisted.push(status.persistedStorageVersionHashes);
    const list = { kind: "List", items: [], metadata: { resourceVersion: "1" } };
    const written = { ...(body as object), metadata: { name: NAME, uid: "u", resourceVersion: "2" } };
    return { status: 200, body: method === "GET" ? list : written, serverTime: 0 };
  };
  const read = async (asked: ApiRequest, parse: (body: Readable) => Promise<unknown>): Promise<unknown> => {
    const answer = (await request(asked)) as { readonly body: unknown };
    return { ...answer, body: await parse(Readable.from([Buffer.from(JSON.stringify(answer.body))])) };
  };
  const look = () => Promise.resolve(seen.observation);
  const reconciler = new Reconciler({
    client: new ApiClient({ server: "https://stand-in", request, read } as unknown as Transport),
    clock,
    logger: pino({ level: "silent" }),
    intervalMs: 240_000,
    crdMode: "manage",
    sharedClock: {
      now: () => clock.now(),
      refresh: async () => {
        if (seen.isClockUnread) throw new ApiError("GET /version", 503, { text: "later" });
      },
    },
    observer: { everything: look, resource: look } as unknown as Observer,
    queue: new WorkQueue(clock),
    sights,
    watch: NO_WATCH,
    index: new MigrationIndex(() => undefined),
  });
  return { persisted, reconciler, seen };
}

const UNPRUNED = crd(["v1", "v2"]);
const PRUNED = crd(["v2"], { generation: 3 });

await tap.test(
  "Reconciler believes no prune of a CRD that it saw while discovery did not show its group",
  async (t) => {
    for (const look of ["poll", "lookAt"] as const) {
      const { persisted, reconciler, seen } = reconcilerOf(observationOf(UNPRUNED, true));
      await (look === "poll" ? reconciler.poll(signal) : reconciler.lookAt(NAME, signal));
      seen.observation = observationOf(PRUNED, false);
      await reconciler.lookAt(NAME, signal);
      t.same(persisted, [["Unknown", "#v2"]], `${look}: an API server that is behind may have stored objects in v1`);
    }
  },
);

await tap.test(
  "Reconciler believes storedVersions of a CRD that was the same while discovery did not show it",
  async (t) => {
    const { persisted, reconciler, seen } = reconcilerOf(observationOf(PRUNED, true));
    await reconciler.poll(signal);
    seen.observation = observationOf(PRUNED, false);
    await reconciler.lookAt(NAME, signal);
    t.same(persisted, [["Unknown"]]);
  },
);

await tap.test(
  "Reconciler believes no prune of a CRD that it saw while StorageStates or the clock of the API server could not be read",
  async (t) => {
    for (const what of ["areStatesDenied", "isClockUnread"] as const) {
      for (const look of ["poll", "lookAt"] as const) {
        const { persisted, reconciler, seen } = reconcilerOf(observationOf(UNPRUNED, false));
        seen[what] = true;
        if (look === "poll") await t.rejects(reconciler.poll(signal));
        else await reconciler.lookAt(NAME, signal);
        t.same(persisted, []);
        Object.assign(seen, { [what]: false, observation: observationOf(PRUNED, false) });
        await reconciler.lookAt(NAME, signal);
        t.same(persisted, [["Unknown", "#v2"]], `${look}, ${what}: objects may be stored in v1`);
      }
    }
  },
);

await tap.test("Reconciler takes no note of a CRD that a user left out", async (t) => {
  const sights = new CrdSights();
  const leftOut = [{ name: NAME, reason: "a user left it out", isOptedOut: true, isShared: false }];
  const { reconciler } = reconcilerOf({ ...observationOf(UNPRUNED, true), leftOut }, sights);
  await reconciler.poll(signal);
  t.same(sights.saw(PRUNED).storedVersions, ["v2"]);
});

/** What a process saw of a CRD that lists two versions, when it led and could not write the StorageState. */
async function sightsOfUnpruned(): Promise<CrdSights> {
  const sights = new CrdSights();
  await reconcilerOf(observationOf(UNPRUNED, true), sights).reconciler.poll(signal);
  return sights;
}

await tap.test("Reconciler believes no prune of a CRD that its process saw when it led before", async (t) => {
  const { persisted, reconciler } = reconcilerOf(observationOf(PRUNED, false), await sightsOfUnpruned());
  await reconciler.lookAt(NAME, signal);
  t.same(persisted, [["Unknown", "#v2"]], "another client pruned it while another replica led, or none");
});

await tap.test("Reconciler believes what another leader wrote of a CRD after its process led before", async (t) => {
  const sights = await sightsOfUnpruned();
  const annotations = { [CRD_ANNOTATION]: formatCrdRecord(PRUNED) };
  const status = {
    persistedStorageVersionHashes: ["#v2"],
    currentStorageVersionHash: "#v2",
    lastHeartbeatTime: new Date(new FakeClock().now()).toISOString(),
  };
  const state = { metadata: { name: NAME, uid: "u", resourceVersion: "1", annotations }, spec: {}, status };
  const { persisted, reconciler } = reconcilerOf(observationOf(PRUNED, false), sights, state);
  await reconciler.lookAt(NAME, signal);
  t.same(persisted, [], "that one may have seen the same, and migrated it");
  t.same(sights.saw(PRUNED).storedVersions, ["v2"], "what this process saw before that is forgotten");
});
