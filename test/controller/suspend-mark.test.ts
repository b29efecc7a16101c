import { Readable } from "node:stream";
import tap from "tap";
import type { ObjectMeta } from "../../src/api/meta.ts";
import { SUSPEND_LEASE } from "../../src/api/migration.ts";
import { SUSPEND_ALL_ANNOTATION } from "../../src/api/names.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { clearSuspendMark, followSuspendMark, setSuspendMark } from "../../src/suspend/suspend-mark.ts";
import { ManualClock } from "../manual-clock.ts";

interface Lease {
  readonly metadata: ObjectMeta;
}

const MARKED = { [SUSPEND_ALL_ANNOTATION]: "2026-01-01T00:00:00Z" };

function leaseWith(annotations: Record<string, string>): Lease {
  return { metadata: { name: SUSPEND_LEASE, uid: "u", resourceVersion: "1", annotations } };
}

function refuse(status: number, reason: string): ApiError {
  return new ApiError("WRITE", status, { answer: { kind: "Status", reason, details: { name: SUSPEND_LEASE } } });
}

/** One Lease, which another client writes before the request of each number. */
function standIn(before: Lease | undefined, others: Readonly<Record<number, Lease | undefined>>) {
  let lease = before;
  let requests = 0;
  const request = async ({ method, body }: ApiRequest): Promise<{ body: unknown }> => {
    requests++;
    lease = requests in others ? others[requests] : lease;
    if (method === "GET") {
      return {
        body: { kind: "LeaseList", metadata: { resourceVersion: "1" }, items: lease === undefined ? [] : [lease] },
      };
    }
    if (method === "POST" && lease !== undefined) throw refuse(409, "AlreadyExists");
    if (method === "PATCH" && lease === undefined) throw refuse(404, "NotFound");
    if (method === "DELETE") {
      const { resourceVersion } = (body as { preconditions: ObjectMeta }).preconditions;
      if (lease === undefined) throw refuse(404, "NotFound");
      if (resourceVersion !== lease.metadata.resourceVersion) throw refuse(409, "Conflict");
      lease = undefined;
      return { body: { kind: "Status", status: "Success", details: { name: SUSPEND_LEASE } } };
    }
    lease = leaseWith((body as Lease).metadata.annotations ?? {});
    return { body: lease };
  };
  const client = new ApiClient({ server: "https://stand-in", request } as unknown as Transport);
  return { client, isMarked: () => lease?.metadata.annotations?.[SUSPEND_ALL_ANNOTATION] !== undefined };
}

// A stand-in: the other client has to come between two requests.
await tap.test("clearSuspendMark() takes no mark away that it has not read", async (t) => {
  const marked = leaseWith(MARKED);
  const later = { metadata: { ...marked.metadata, resourceVersion: "2" } };
  for (const [what, before, others, wasThere] of [
    ["nobody else", marked, {}, true],
    ["no Lease", undefined, {}, false],
    ["a Lease without a mark", leaseWith({}), {}, false],
    ["suspended by another client in between", leaseWith({}), { 2: later }, true],
    ["resumed by another client in between", marked, { 2: undefined }, true],
  ] as const) {
    const api = standIn(before, others);
    t.equal(await clearSuspendMark(api.client, "ns"), wasThere, what);
    t.notOk(api.isMarked(), what);
  }
});

// The same.
await tap.test("setSuspendMark() sets the mark also while others take it away", async (t) => {
  const wanted = { namespace: "ns", mark: { since: "2026-02-01T00:00:00Z", by: "me" } };
  for (const [what, before, others, isNew] of [
    ["nobody else", undefined, {}, true],
    ["it is there", leaseWith(MARKED), {}, false],
    ["a Lease without a mark", leaseWith({}), {}, true],
    ["suspended by another client in between", undefined, { 2: leaseWith(MARKED) }, false],
    ["suspended and resumed by other clients in between", undefined, { 2: leaseWith(MARKED), 3: undefined }, true],
    ["resumed by another client in between", leaseWith(MARKED), { 2: undefined }, false],
    ["a Lease without a mark is deleted in between", leaseWith({}), { 2: undefined }, true],
  ] as const) {
    const api = standIn(before, others);
    t.equal(await setSuspendMark(api.client, wanted), isNew, what);
    t.ok(api.isMarked(), `${what}: it is in force`);
  }
  const names = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [index * 2 + 2, leaseWith({})]));
  const gone = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [index * 2 + 1, undefined]));
  const contended = standIn(undefined, { ...names, ...gone });
  await t.rejects(setSuspendMark(contended.client, wanted), { code: "Conflict" });
});

/** An API server with one Lease, or none, whose lists a test can make hang; it remembers the watches that are open. */
class FollowedStandIn {
  readonly clock = new ManualClock();
  readonly told: boolean[] = [];
  readonly errors: unknown[] = [];
  readonly watches = new Map<Readable, string>();
  readonly answers: (() => void)[] = [];
  resourceVersion = 1;
  isMarked = false;
  hangs = false;

  follow(signal: AbortSignal): Promise<void> {
    const transport = {
      server: "https://stand-in",
      request: (request: ApiRequest) => this.#list(request),
      stream: (request: ApiRequest) => this.#watch(request),
    };
    return followSuspendMark({
      client: new ApiClient(transport as unknown as Transport),
      clock: this.clock,
      namespace: "ns",
      onMark: (mark) => void this.told.push(mark !== undefined),
      onError: (error) => void this.errors.push(error),
      signal,
    });
  }

  /** Another client writes the mark, and the watches that are open tell of it. */
  mark(): void {
    this.isMarked = true;
    this.resourceVersion++;
    const event = { type: "MODIFIED", object: this.#lease() };
    for (const watch of this.watches.keys()) watch.push(`${JSON.stringify(event)}\n`);
  }

  async #list({ signal }: ApiRequest): Promise<{ body: unknown }> {
    const resourceVersion = String(this.resourceVersion);
    const body = { kind: "LeaseList", metadata: { resourceVersion }, items: this.isMarked ? [this.#lease()] : [] };
    if (this.hangs) {
      await new Promise<void>((resolve, reject) => {
        this.answers.push(resolve);
        signal?.addEventListener("abort", () => reject(new Error("given up")));
      });
    }
    return { body };
  }

  async #watch({ query, signal }: ApiRequest): Promise<Readable> {
    const stream = new Readable({ read: () => undefined });
    this.watches.set(stream, String(query?.["resourceVersion"]));
    signal?.addEventListener("abort", () => {
      this.watches.delete(stream);
      stream.destroy();
    });
    return stream;
  }

  #lease(): object {
    const lease = leaseWith(MARKED);
    return { ...lease, metadata: { ...lease.metadata, resourceVersion: String(this.resourceVersion) } };
  }
}

// A stand-in: its lists hang while its watch works, as where a load balancer leads them to API servers of which one hangs.
await tap.test("followSuspendMark() hears its watch while a list hangs, and gives that list up", async (t) => {
  const api = new FollowedStandIn();
  const stop = new AbortController();
  const ended = api.follow(stop.signal);
  await api.clock.advance(1_000);
  const [watch] = api.watches.keys();
  t.same(api.told, [false]);
  api.hangs = true;
  await api.clock.advance(10_000);
  t.equal(api.answers.length, 1, "it lists again");
  api.mark();
  await api.clock.advance(1_000);
  t.same(api.told, [false, true], "the watch tells of the mark");
  await api.clock.advance(5_000);
  t.equal(api.errors.length, 1, "the list is given up");
  t.same(api.told, [false, true], "and changes nothing");
  t.same([...api.watches.keys()], [watch], "nor does it end the watch");
  api.hangs = false;
  await api.clock.advance(10_000);
  t.same(api.told, [false, true, true], "it lists again");
  t.same([...api.watches.values()], ["2"], "and watches from there, once");
  stop.abort();
  await ended;
  t.equal(api.watches.size, 0);
});

await tap.test("followSuspendMark() does not believe a list that is older than what its watch told", async (t) => {
  const api = new FollowedStandIn();
  const stop = new AbortController();
  const ended = api.follow(stop.signal);
  await api.clock.advance(1_000);
  api.hangs = true;
  await api.clock.advance(10_000);
  api.mark();
  await api.clock.advance(1_000);
  for (const answer of api.answers) answer();
  await api.clock.advance(1_000);
  t.same(api.told, [false, true]);
  t.same([...api.watches.values()], ["1"]);
  stop.abort();
  await ended;
});

await tap.test(
  "followSuspendMark() believes a list with a lower resourceVersion, as after etcd was restored",
  async (t) => {
    const api = new FollowedStandIn();
    api.resourceVersion = 100_000;
    const stop = new AbortController();
    const ended = api.follow(stop.signal);
    await api.clock.advance(1_000);
    t.same(api.told, [false]);
    api.resourceVersion = 90_000;
    api.isMarked = true;
    await api.clock.advance(11_000);
    t.same(api.told, [false, true]);
    stop.abort();
    await ended;
  },
);
