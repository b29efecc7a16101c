import type { ServerResponse } from "node:http";
import tap from "tap";
import type { ObjectMeta, Status } from "../../../src/api/meta.ts";
import { REWRITE_FIELD_MANAGER } from "../../../src/api/names.ts";
import { type ListedObject, listedObjectOf } from "../../../src/old/kube/listed-object.ts";
import type { NamedObject } from "../../../src/old/kube/named-object.ts";
import { APPLY_PATCH, MERGE_PATCH } from "../../../src/old/kube/resources.ts";
import { readObjectState, stateOf } from "../../../src/old/migrator/rewrite/object-state.ts";
import type { ObjectOutcome, RewriteContext } from "../../../src/old/migrator/rewrite/rewrite-context.ts";
import { rewriteObject } from "../../../src/old/migrator/rewrite/rewrite.ts";
import { Limiter } from "../../../src/old/retry/limiter.ts";
import { Pacer } from "../../../src/old/retry/pacer.ts";
import { FAULT_PATIENCE_MS, Patience } from "../../../src/old/retry/patience.ts";
import { Retrier } from "../../../src/old/retry/retrier.ts";
import { FakeClock } from "../../fake-clock.ts";
import { type LocalServer, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

// Every server here is local: a real API server cannot be made to give these answers on demand, nor in this order.

/** An object as the API server sends it. */
const SENT: ObjectMeta = {
  name: "a",
  namespace: "ns",
  uid: "uid-a",
  resourceVersion: "50",
  generation: 2,
  creationTimestamp: "2026-01-01T00:00:00Z",
  managedFields: [{ manager: "kubectl", operation: "Update" }],
};
const METADATA = listedObjectOf(Buffer.from(JSON.stringify({ metadata: SENT })));
const { generation: _generation, ...NO_GENERATION } = METADATA;
const WATERMARK = "100";
const COLLECTION = "/apis/example.com/v2/namespaces/ns/widgets";
const PATH = `${COLLECTION}/a`;

type Answer = (response: ServerResponse) => unknown;

const object = (metadata: Partial<ObjectMeta>): Answer => {
  const body = { kind: "PartialObjectMetadata", metadata: { ...SENT, ...metadata } };
  return (response) => sendJson(response, 200, body);
};
/** An answer for an object without a generation, with a label that it did not have. */
const labelled = (resourceVersion: string): Answer => {
  const { generation: _, ...metadata } = SENT;
  const body = { metadata: { ...metadata, resourceVersion, labels: { owner: "platform" } } };
  return (response) => sendJson(response, 200, body);
};
/** What a list by name answers: the object with these changes, or none. */
const listed = (metadata: Partial<ObjectMeta> | undefined): Answer => {
  const items = metadata === undefined ? [] : [{ metadata: { ...SENT, ...metadata } }];
  return (response) =>
    sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata: { resourceVersion: "500" }, items });
};
const status =
  (code: number, fields: Partial<Status> = {}): Answer =>
  (response) =>
    sendStatus(response, code, fields);
const text =
  (code: number, body: string): Answer =>
  (response) =>
    response.writeHead(code, { "content-type": "text/plain" }).end(body);

const WRITTEN = object({ resourceVersion: "101" });
const CONFLICT = status(409, { reason: "Conflict", message: "the object has been modified" });

const FORBIDDEN_MESSAGE = 'widgets "a" is forbidden: User "jane" cannot patch resource "widgets" in API';
const FORBIDDEN = status(403, { message: FORBIDDEN_MESSAGE });

interface Answers {
  /** Answers to patches, one after the other; the last one is repeated. */
  readonly patch: readonly Answer[];
  /** Answers to lists by name likewise. */
  readonly list?: readonly Answer[];
  /** The lists of what is served, by their paths. @default none is answered */
  readonly discovery?: Readonly<Record<string, object>>;
  /** @default METADATA */
  readonly metadata?: ListedObject;
  readonly dryRun?: boolean;
  readonly subresource?: "status";
  /** Told how many requests there were. */
  readonly onObjectsRead?: (requests: number) => void;
  readonly adviceOnRejection?: string;
  /** Whether other objects get through all the while. @default true */
  readonly othersProgress?: boolean;
  readonly limiter?: Limiter;
  /** Told of the object of each request that is tried again. */
  readonly onRetry?: (object: NamedObject | undefined) => void;
}

interface Rewritten {
  readonly server: LocalServer;
  readonly clock: FakeClock;
  readonly outcome: Promise<ObjectOutcome>;
}

async function rewrite(t: Parameters<typeof startServer>[0], answers: Answers): Promise<Rewritten> {
  const queues: Record<string, Answer[]> = { PATCH: [...answers.patch], GET: [...(answers.list ?? [])] };
  const lists = answers.discovery ?? {};
  const server = await startServer(t, ({ method, path }, response) => {
    if (path in lists) return sendJson(response, 200, lists[path]);
    const queue = queues[method] ?? [];
    const answer = queue.length > 1 ? queue.shift() : queue[0];
    return (answer ?? text(599, "unexpected"))(response);
  });
  const clock = new FakeClock();
  const retrier = new Retrier({
    clock,
    random: () => 0.5,
    maxIdleMs: 300_000,
    onRetry: (_, __, retried) => {
      answers.onRetry?.(retried);
      if (answers.othersProgress ?? true) retrier.progressed();
    },
  });
  const context: RewriteContext = {
    transport: server.transport(),
    clock,
    retrier,
    patience: new Patience(),
    pacer: new Pacer({
      clock,
      maxInFlight: 1,
      maxQps: Number.POSITIVE_INFINITY,
      ...(answers.limiter === undefined ? {} : { limiter: answers.limiter }),
    }),
    resource: { group: "example.com", version: "v2", resource: "widgets" },
    kind: "Widget",
    watermark: WATERMARK,
    dryRun: answers.dryRun ?? false,
    subresource: answers.subresource,
    adviceOnRejection: answers.adviceOnRejection,
    reads: { pageRead: () => undefined, objectRead: async () => answers.onObjectsRead?.(server.seen.length) },
    signal: new AbortController().signal,
    waitSignal: new AbortController().signal,
  };
  const outcome = rewriteObject(context, answers.metadata ?? METADATA);
  return { server, clock, outcome };
}

await tap.test("rewriteObject() applies nothing but the identity, with uid and resourceVersion", async (t) => {
  const { server, outcome } = await rewrite(t, { patch: [WRITTEN] });
  t.same(await outcome, { kind: "migrated", changed: false });
  t.equal(server.seen.length, 1);
  const [request] = server.seen;
  t.match(request, { method: "PATCH", path: PATH });
  t.same(Object.fromEntries(request?.query ?? []), { fieldManager: REWRITE_FIELD_MANAGER });
  t.equal(request?.headers["content-type"], APPLY_PATCH);
  t.match(request?.headers.accept, "as=PartialObjectMetadata");
  t.strictSame(request?.body, {
    apiVersion: "example.com/v2",
    kind: "Widget",
    metadata: { name: "a", namespace: "ns", uid: "uid-a", resourceVersion: "50" },
  });
});

interface Case extends Answers {
  readonly name: string;
  readonly outcome: ObjectOutcome;
  readonly patches: number;
  readonly lists?: number;
  readonly sleeps?: readonly number[];
}

const cases: readonly Case[] = [
  {
    name: "current when the resourceVersion did not move",
    patch: [object({})],
    outcome: { kind: "current" },
    patches: 1,
  },
  {
    name: "migrated and changed when admission moved the generation",
    patch: [object({ resourceVersion: "101", generation: 3 })],
    outcome: { kind: "migrated", changed: true },
    patches: 1,
  },
  {
    name: "migrated and changed when admission changed labels, of an object without a generation, too",
    metadata: NO_GENERATION,
    patch: [labelled("101")],
    outcome: { kind: "migrated", changed: true },
    patches: 1,
  },
  {
    name: "migrated when a dry-run leaves the resourceVersion as it is",
    dryRun: true,
    patch: [object({})],
    outcome: { kind: "migrated", changed: false },
    patches: 1,
  },
  {
    name: "migrated and changed when a dry-run shows that admission would move the generation",
    dryRun: true,
    patch: [object({ generation: 3 })],
    outcome: { kind: "migrated", changed: true },
    patches: 1,
  },
  {
    name: "newer when a conflict shows a write after the watermark",
    patch: [CONFLICT],
    list: [listed({ resourceVersion: "101" })],
    outcome: { kind: "newer" },
    patches: 1,
    lists: 1,
  },
  {
    name: "migrated after conflicts up to the watermark itself",
    patch: [CONFLICT, CONFLICT, WRITTEN],
    list: [listed({ resourceVersion: "99" }), listed({ resourceVersion: "100" })],
    outcome: { kind: "migrated", changed: false },
    patches: 3,
    lists: 2,
  },
  {
    name: "failed when conflicts never pass the watermark",
    patch: [CONFLICT],
    list: Array.from({ length: 21 }, (_, index) => listed({ resourceVersion: String(80 + index) })),
    outcome: { kind: "failed", reason: "the object has been modified" },
    patches: 21,
    lists: 21,
  },
  {
    name: "failed when conflicts show resourceVersions that are no integers",
    patch: [CONFLICT],
    list: Array.from({ length: 21 }, (_, index) => listed({ resourceVersion: `z-${999 + index}` })),
    outcome: { kind: "failed", reason: "the object has been modified" },
    patches: 21,
    lists: 21,
  },
  {
    name: "gone when a list by name shows no object after a conflict",
    patch: [CONFLICT],
    list: [listed(undefined)],
    outcome: { kind: "gone" },
    patches: 1,
    lists: 1,
  },
  {
    name: "gone when another object has its name, written after the watermark",
    patch: [CONFLICT],
    list: [listed({ uid: "uid-b", resourceVersion: "101" })],
    outcome: { kind: "gone" },
    patches: 1,
    lists: 1,
  },
  {
    name: "migrated when another object has its name, and nothing says when it was written",
    patch: [CONFLICT, object({ uid: "uid-b", resourceVersion: "101" })],
    list: [listed({ uid: "uid-b", resourceVersion: "99" })],
    outcome: { kind: "migrated", changed: false },
    patches: 2,
    lists: 1,
  },
  {
    name: "failed after conflicts that nothing explains, with a pause after each",
    patch: [CONFLICT],
    list: [listed({})],
    outcome: { kind: "failed", reason: "the object has been modified" },
    patches: 6,
    lists: 6,
    sleeps: [100, 200, 400, 800, 1_600],
  },
  {
    name: "failed after 15 s when the authorizer refuses all the while",
    patch: [FORBIDDEN],
    outcome: { kind: "failed", reason: FORBIDDEN_MESSAGE },
    patches: 13,
    sleeps: [50, 100, 200, 400, 800, 1_600, 2_000, 2_000, 2_000, 2_000, 2_000, 2_000],
  },
  {
    name: "migrated when the authorizer of an API server that just started refuses at first",
    patch: [FORBIDDEN, status(401, { message: "Unauthorized" }), status(401, { message: "Unauthorized" }), WRITTEN],
    outcome: { kind: "migrated", changed: false },
    // A 401 is tried again with new credentials before it counts.
    patches: 4,
    sleeps: [50, 100],
  },
  {
    name: "gone when the list by name is refused at first",
    patch: [CONFLICT],
    list: [FORBIDDEN, listed(undefined)],
    outcome: { kind: "gone" },
    patches: 2,
    lists: 2,
    sleeps: [50],
  },
  {
    name: "failed when the list by name is rejected",
    patch: [CONFLICT],
    list: [status(400, { message: "field label not supported: metadata.name" })],
    outcome: { kind: "failed", reason: "field label not supported: metadata.name" },
    patches: 1,
    lists: 1,
  },
  {
    name: "failed at once when admission refuses",
    patch: [status(403, { message: 'admission webhook "x.io" denied the request:\n  no' })],
    outcome: { kind: "failed", reason: 'admission webhook "x.io" denied the request: no' },
    patches: 1,
  },
  {
    name: "failed at once when the schema refuses",
    patch: [status(422, { message: "spec.size: Invalid value" })],
    outcome: { kind: "failed", reason: "spec.size: Invalid value" },
    patches: 1,
  },
  {
    name: "migrated after a 429, as late as Retry-After asks",
    patch: [(response) => response.writeHead(429, { "retry-after": "3" }).end("slow down"), WRITTEN],
    outcome: { kind: "migrated", changed: false },
    patches: 2,
    sleeps: [3_050],
  },
  {
    name: "migrated after a broken connection and a 503",
    patch: [(response) => response.destroy(), status(503), WRITTEN],
    outcome: { kind: "migrated", changed: false },
    patches: 3,
    sleeps: [50, 100],
  },
  {
    name: "migrated after 500s that pass",
    patch: [status(500), status(500), WRITTEN],
    outcome: { kind: "migrated", changed: false },
    patches: 3,
    sleeps: [50, 100],
  },
];

for (const { name, outcome, patches, lists = 0, sleeps = [], ...answers } of cases) {
  await tap.test(`rewriteObject() is ${name}`, async (t) => {
    const run = await rewrite(t, answers);
    t.strictSame(await run.outcome, outcome);
    const count = (method: string): number => run.server.seen.filter((request) => request.method === method).length;
    t.equal(count("PATCH"), patches);
    t.equal(count("GET"), lists);
    t.same(run.clock.sleeps, sleeps);
    const dryRuns = run.server.seen.filter(({ query }) => query.get("dryRun") === "All").length;
    t.equal(dryRuns, answers.dryRun === true ? patches : 0);
  });
}

const DENIAL = { reason: "NotFound", message: 'admission webhook "own.example.com" denied the request: no "a"' };
for (const code of [404, 409, 429, 500]) {
  for (const details of [{}, { details: { name: "a", kind: "widgets", retryAfterSeconds: 30 } }]) {
    const words = "details" in details ? "with" : "without";
    await tap.test(
      `rewriteObject() is failed at once when a webhook denies with ${code} ${words} details`,
      async (t) => {
        const limits: number[] = [];
        const limiter = new Limiter({ maxInFlight: 8, onChange: (limit) => limits.push(limit) });
        const { server, clock, outcome } = await rewrite(t, {
          patch: [status(code, { ...DENIAL, ...details })],
          limiter,
        });
        t.strictSame(await outcome, { kind: "failed", reason: DENIAL.message });
        t.equal(server.seen.length, 1, "nothing is asked about an object that a webhook says is gone");
        t.same(clock.sleeps, []);
        t.same(limits, [4], "the limiter takes no denial for overload");
      },
    );
  }
}

/** Without managedFields, as it is listed and as a write answers. */
const { managedFields: _managedFields, ...BARE_SENT } = SENT;
const BARE = listedObjectOf(Buffer.from(JSON.stringify({ metadata: BARE_SENT })));
const BARE_WRITTEN = object({ resourceVersion: "101", managedFields: undefined as never });
const OWNED = object({ managedFields: [{ manager: "before-first-apply", operation: "Update" }] });

await tap.test("rewriteObject() sends a merge patch when an apply would give the object managedFields", async (t) => {
  const { server, outcome } = await rewrite(t, { patch: [OWNED, BARE_WRITTEN], metadata: BARE });
  t.same(await outcome, { kind: "migrated", changed: false });
  t.same(
    server.seen.map(({ headers }) => headers["content-type"]),
    [APPLY_PATCH, MERGE_PATCH],
  );
  t.match(server.seen[0]?.query.get("dryRun"), "All");
  t.match(server.seen[1]?.body, { metadata: { uid: "uid-a", resourceVersion: "50" } });
});

await tap.test("rewriteObject() falls back to a merge patch with uid and resourceVersion", async (t) => {
  // https://github.com/kubernetes/kubernetes/issues/111937
  const message = "request to convert CR to an invalid group/version: example.com/v0";
  const { server, clock, outcome } = await rewrite(t, { patch: [status(500, { message }), WRITTEN] });
  t.same(await outcome, { kind: "migrated", changed: false });
  t.same(clock.sleeps, []);
  t.same(
    server.seen.map(({ headers }) => headers["content-type"]),
    [APPLY_PATCH, MERGE_PATCH],
  );
  t.match(server.seen[1]?.body, { metadata: { uid: "uid-a", resourceVersion: "50" } });
});

await tap.test(
  "rewriteObject() is failed when neither an apply nor a merge patch can convert the object",
  async (t) => {
    const message = "request to convert CR from an invalid group/version: example.com/v0";
    const { server, outcome } = await rewrite(t, { patch: [status(500, { message })] });
    t.same(await outcome, { kind: "failed", reason: message });
    t.equal(server.seen.filter(({ headers }) => headers["content-type"] === APPLY_PATCH).length, 1);
  },
);

await tap.test("rewriteObject() is failed when a 500 lasts half a minute while other objects pass", async (t) => {
  const { clock, server, outcome } = await rewrite(t, { patch: [status(500, { message: "boom" })] });
  t.same(await outcome, { kind: "failed", reason: "boom" });
  t.ok(clock.monotonic() >= FAULT_PATIENCE_MS);
  t.ok(clock.monotonic() < 2 * FAULT_PATIENCE_MS);
  t.notOk(server.seen.some(({ method }) => method === "GET"));
});

await tap.test("rewriteObject() waits when etcd is in trouble, although other objects pass", async (t) => {
  const outage = Array.from({ length: 60 }, () => status(500, { message: "etcdserver: request timed out" }));
  const { clock, outcome } = await rewrite(t, { patch: [...outage, WRITTEN] });
  t.same(await outcome, { kind: "migrated", changed: false });
  t.ok(clock.monotonic() > 10 * 60_000);
});

const outages: readonly [name: string, answer: Answer, othersProgress: boolean][] = [
  ["a 500 lasts and no other object passes", status(500), false],
  ["a 503 lasts and no other object passes", status(503), false],
  ["nothing answers", (response) => response.destroy(), false],
];

for (const [name, answer, othersProgress] of outages) {
  await tap.test(`rewriteObject() throws RetryBudgetExceeded when ${name}`, async (t) => {
    const { clock, outcome } = await rewrite(t, { patch: [answer], othersProgress });
    await t.rejects(outcome, { code: "RetryBudgetExceeded" });
    t.ok(clock.monotonic() >= 300_000);
  });
}

const LISTED: ListedObject = {
  name: "a",
  namespace: "ns",
  uid: "uid-a",
  resourceVersion: "50",
  hasManagedFields: true,
  digest: "d",
};

await tap.test("stateOf() is gone only where a list shows no object of the name", async (t) => {
  t.strictSame(stateOf(undefined, LISTED), { kind: "gone" });
  t.strictSame(stateOf(LISTED, LISTED), { kind: "present", object: LISTED });
  const other = { ...LISTED, uid: "uid-b" };
  t.strictSame(stateOf(other, LISTED), { kind: "replaced", object: other });
});

for (const { shown, sought, kind } of [
  { shown: { namespace: "ns", uid: "uid-b" }, sought: {}, kind: "gone" },
  { shown: { namespace: "ns", uid: "uid-b" }, sought: { namespace: "ns" }, kind: "replaced" },
  { shown: { namespace: "ns", uid: "uid-a" }, sought: { namespace: "ns" }, kind: "present" },
  // An aggregated API server may leave out what the path says.
  { shown: { uid: "uid-a" }, sought: { namespace: "ns" }, kind: "present" },
] as const) {
  const words = `${JSON.stringify(sought)} where a list shows ${JSON.stringify(shown)}`;
  await tap.test(`readObjectState() is "${kind}" for ${words}`, async (t) => {
    const server = await startServer(t, (_, response) => {
      const items = [{ metadata: { name: "x", resourceVersion: "50", ...shown } }];
      sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata: { resourceVersion: "60" }, items });
    });
    const resource = { group: "example.com", version: "v1", resource: "widgets" };
    const object = { name: "x", uid: "uid-a", ...sought };
    const { signal } = new AbortController();
    const state = await readObjectState(server.transport(), resource, object, { signal });
    t.equal(state.kind, kind);
  });
}

await tap.test(
  "readObjectState() finds an object without a namespace behind one of the same name in a namespace",
  async (t) => {
    const other = { metadata: { name: "x", namespace: "default", uid: "uid-b", resourceVersion: "50" } };
    const left = { metadata: { name: "x", uid: "uid-a", resourceVersion: "40" } };
    const server = await startServer(t, (_, response) => {
      const metadata = { resourceVersion: "60" };
      sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata, items: [other, left] });
    });
    const resource = { group: "example.com", version: "v1", resource: "widgets" };
    const { signal } = new AbortController();
    const state = await readObjectState(server.transport(), resource, { name: "x", uid: "uid-a" }, { signal });
    t.match(state, { kind: "present", object: { resourceVersion: "40" } });
  },
);
