import { Readable } from "node:stream";
import { pino } from "pino";
import tap, { type Test } from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { HASH_ANNOTATION } from "../../src/api/names.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { type MigrationChange, MigrationFeed } from "../../src/migrations/migration-feed.ts";
import { Loops } from "../../src/observability/loops.ts";
import { ManualClock } from "../manual-clock.ts";

/** As the authorizer says it. */
const FORBIDDEN =
  'storageversionmigrations.migration.k8s.io is forbidden: User "u" cannot watch resource "storageversionmigrations"';

function migrationOf(name: string, resourceVersion: string): StorageVersionMigration {
  const managedFields = [{ manager: "kubectl", operation: "Update" }];
  const annotations = { [HASH_ANNOTATION]: "h", "kubectl.kubernetes.io/last-applied-configuration": "x".repeat(1_000) };
  const metadata = { name, uid: `uid-${name}`, resourceVersion, annotations, managedFields };
  const failures = Array.from({ length: 100 }, (_, index) => ({ name: `o${index}`, reason: "no" }));
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata,
    spec: { resource: { group: "example.com", version: "v1", resource: "as" } },
    status: { conditions: [{ type: "Running", status: "True" }], failures },
  } as unknown as StorageVersionMigration;
}

function deletedOf({ metadata, ...rest }: StorageVersionMigration): StorageVersionMigration {
  return { ...rest, metadata: { ...metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } };
}

/** Two migrations on a page. A stand-in: the order of lists, watches and refusals is the test's. */
class Lists {
  readonly lists: string[] = [];
  readonly watches: string[] = [];
  readonly migrations = new Map<string, StorageVersionMigration>();
  readonly streams = new Set<Readable>();
  version = 10;
  /** What comes instead of a list. */
  answer: unknown;
  refusal: (request: ApiRequest) => ApiError | undefined = () => undefined;
  readonly client = new ApiClient({
    server: "https://stand-in",
    read: (request: ApiRequest, read: (body: Readable) => Promise<unknown>) => this.#read(request, read),
    stream: (request: ApiRequest) => this.#stream(request),
  } as unknown as Transport);

  change(type: "ADDED" | "MODIFIED" | "DELETED", name: string): void {
    const object = migrationOf(name, String(++this.version));
    if (type === "DELETED") {
      this.migrations.delete(name);
    } else {
      this.migrations.set(name, object);
    }
    this.streams.forEach((stream) => stream.push(`${JSON.stringify({ type, object })}\n`));
  }

  async #read(request: ApiRequest, read: (body: Readable) => Promise<unknown>) {
    request.signal?.throwIfAborted();
    const from = Number(request.query?.["continue"] ?? 0);
    this.lists.push(String(from));
    const refused = this.refusal(request);
    if (refused !== undefined) {
      throw refused;
    }
    const items = [...this.migrations.values()].slice(from, from + 2);
    const more = from + 2 < this.migrations.size ? { continue: String(from + 2) } : {};
    const list = { kind: "StorageVersionMigrationList", metadata: { resourceVersion: "10", ...more }, items };
    const body = await read(Readable.from([Buffer.from(JSON.stringify(this.answer ?? list))]));
    return { status: 200, body, serverTime: undefined };
  }

  async #stream(request: ApiRequest): Promise<Readable> {
    this.watches.push(String(request.query?.["resourceVersion"]));
    const refused = this.refusal(request);
    if (refused !== undefined) {
      throw refused;
    }
    const stream = new Readable({ read: () => undefined });
    this.streams.add(stream);
    const end = (): void => void (this.streams.delete(stream) && stream.destroy());
    request.signal?.addEventListener("abort", end, { once: true });
    return stream;
  }
}

function start(t: Test) {
  const api = new Lists();
  const clock = new ManualClock();
  const lines: string[] = [];
  const logger = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
  const feed = new MigrationFeed({ client: api.client, clock, logger });
  const stop = new AbortController();
  const ended: Promise<void>[] = [];
  t.teardown(async () => {
    stop.abort(new Error("the test is over"));
    await Promise.all(ended);
  });
  const follow = (onChange: (change: MigrationChange) => void, signal: AbortSignal = stop.signal): void =>
    void ended.push(feed.follow(onChange, signal));
  return { api, clock, follow, lines };
}

/** What a follower is told, in a few words. */
function words(told: string[]) {
  return (change: MigrationChange): void => {
    if (change.type === "listed") {
      told.push(`listed ${change.migrations.map(({ metadata }) => metadata.name).join(" ")}`);
    } else if (change.type === "changed") {
      told.push(`changed ${change.migration.metadata.name}`);
    } else if (change.type === "deleted") {
      told.push(`deleted ${change.uid}`);
    }
  };
}

await tap.test("MigrationFeed lists page by page and watches once, for all who follow", async (t) => {
  const { api, clock, follow } = start(t);
  ["a", "b", "c"].forEach((name) => api.migrations.set(name, migrationOf(name, "5")));
  const told: [string[], string[], string[]] = [[], [], []];
  told.forEach((one) => follow(words(one)));
  await clock.advance(0);
  api.change("MODIFIED", "a");
  api.change("DELETED", "b");
  await clock.advance(0);
  t.same(told[0], ["listed a b c", "changed a", "deleted uid-b"]);
  t.same(told[1], told[0]);
  t.same(told[2], told[0]);
  t.same(api.lists.slice(-2), ["0", "2"], "page by page");
  t.equal(api.streams.size, 1, "one watch");
  t.equal(api.watches.at(-1), "10", "from what the list showed");
});

await tap.test(
  "MigrationFeed tells of one that is deleted as of one that is gone, whatever finalizer keeps it",
  async (t) => {
    const { api, clock, follow } = start(t);
    api.migrations.set("a", migrationOf("a", "5"));
    api.migrations.set("b", deletedOf(migrationOf("b", "5")));
    const told: string[] = [];
    follow(words(told));
    await clock.advance(0);
    const object = deletedOf(migrationOf("a", "11"));
    api.streams.forEach((stream) => stream.push(`${JSON.stringify({ type: "MODIFIED", object })}\n`));
    await clock.advance(0);
    t.same(told, ["listed a", "deleted uid-a"]);
  },
);

await tap.test("MigrationFeed lists again for one that begins to follow later, and loses nothing", async (t) => {
  const { api, clock, follow } = start(t);
  api.migrations.set("a", migrationOf("a", "5"));
  const [first, second]: [string[], string[]] = [[], []];
  follow(words(first));
  await clock.advance(0);
  const { length } = api.lists;
  // The watch is deaf: what the leader before this one wrote is in a list alone.
  api.migrations.set("late", migrationOf("late", "9"));
  follow(words(second));
  await clock.advance(0);
  t.equal(api.lists.length, length + 1);
  t.same(second, ["listed a late"], "as new as the moment when it began");
  t.same(first.at(-1), "listed a late");
  api.change("ADDED", "b");
  await clock.advance(0);
  t.same([first.at(-1), second.at(-1)], ["changed b", "changed b"]);
  t.equal(api.streams.size, 1);
});

await tap.test(
  "MigrationFeed tells one that begins to follow in mid-list nothing before a list of its own",
  async (t) => {
    const { api, clock, follow } = start(t);
    ["a", "b", "c"].forEach((name) => api.migrations.set(name, migrationOf(name, "5")));
    const [first, second]: [string[], string[]] = [[], []];
    api.refusal = ({ query }) => {
      if (query?.["continue"] === "2" && second.length === 0 && api.lists.length === 2) {
        follow(words(second));
      }
      return undefined;
    };
    follow(words(first));
    await clock.advance(0);
    t.same(second, ["listed a b c"]);
    t.same(api.lists, ["0", "2", "0", "2"]);
    t.equal(first.length, 2);
  },
);

await tap.test("MigrationFeed takes an answer that is no list for none", async (t) => {
  for (const answer of [{}, { kind: "Status", status: "Success" }, "sign in", { items: null, metadata: {} }]) {
    const { api, clock, follow, lines } = start(t);
    api.answer = answer;
    const told: string[] = [];
    follow(words(told));
    await clock.advance(60_000);
    t.same(told, [], JSON.stringify(answer));
    t.ok(api.lists.length < 15, `${api.lists.length} lists in a minute`);
    t.match(lines[0], /"resource":"StorageVersionMigrations".*Cannot follow a resource/);
    api.answer = undefined;
    await clock.advance(10_000);
    t.same(told, ["listed "]);
  }
});

await tap.test("MigrationFeed keeps of a migration only what is read", async (t) => {
  const { api, clock, follow } = start(t);
  api.migrations.set("a", migrationOf("a", "5"));
  const seen: StorageVersionMigration[] = [];
  follow((change) => {
    if (change.type === "listed") seen.push(...change.migrations);
    if (change.type === "changed") seen.push(change.migration);
  });
  await clock.advance(0);
  api.change("MODIFIED", "a");
  await clock.advance(0);
  t.equal(seen.length, 2);
  for (const { metadata, status } of seen) {
    t.same(Object.keys(metadata), ["name", "uid", "resourceVersion", "annotations"]);
    t.same(metadata.annotations, { [HASH_ANNOTATION]: "h" });
    t.same(status, { conditions: [{ type: "Running", status: "True" }] });
  }
});

await tap.test("MigrationFeed begins again where the continue token expires in mid-list", async (t) => {
  const { api, clock, follow } = start(t);
  ["a", "b", "c"].forEach((name) => api.migrations.set(name, migrationOf(name, "5")));
  const told: string[] = [];
  let refusals = 1;
  api.refusal = ({ query }) =>
    query?.["continue"] === "2" && refusals-- > 0 ? new ApiError("LIST", 410, { text: "expired" }) : undefined;
  follow(words(told));
  await clock.advance(0);
  await clock.advance(10_000);
  t.same(told, ["listed a b c"], "half a list is none");
  t.same(api.lists, ["0", "2", "0", "2"]);
});

function isWatch({ query }: ApiRequest): boolean {
  return query?.["watch"] === true;
}

await tap.test("MigrationFeed slows down where it may not watch, says so once, and goes on when it may", async (t) => {
  const { api, clock, follow, lines } = start(t);
  api.migrations.set("a", migrationOf("a", "5"));
  const told: string[] = [];
  api.refusal = (request) => (isWatch(request) ? new ApiError("WATCH", 403, { text: FORBIDDEN }) : undefined);
  follow(words(told));
  await clock.advance(600_000);
  t.ok(api.lists.length >= 10, `${api.lists.length} looks: changes are seen all the same`);
  t.ok(api.lists.length <= 18, `${api.lists.length} looks in ten minutes`);
  t.equal(lines.filter((line) => line.includes("Not allowed to list and watch")).length, 1, "said once");
  t.match(lines.join(""), /cannot watch resource.*changes are noticed up to a minute late/s);
  api.refusal = () => undefined;
  await clock.advance(61_000);
  t.equal(api.streams.size, 1);
  t.match(lines.at(-1), /Can list and watch/);
});

await tap.test(
  "MigrationFeed tells the others where one cannot take a change in, and leaves out what is no migration",
  async (t) => {
    const { api, clock, follow, lines } = start(t);
    api.migrations.set("a", migrationOf("a", "5"));
    api.migrations.set("bare", {
      metadata: { name: "bare", uid: "b", resourceVersion: "4" },
    } as StorageVersionMigration);
    const told: string[] = [];
    follow(() => {
      throw new TypeError("a fault");
    });
    follow(words(told));
    await clock.advance(0);
    api.change("MODIFIED", "a");
    await clock.advance(0);
    t.same(told, ["listed a", "changed a"]);
    t.match(lines.join(""), /"migration":"bare","problem":"spec is missing","msg":"Left a StorageVersionMigration out/);
  },
);

await tap.test("MigrationFeed lets the connection go when it has no follower left, and begins again", async (t) => {
  const { api, clock, follow } = start(t);
  const once = new AbortController();
  follow(() => undefined, once.signal);
  await clock.advance(0);
  once.abort(new Error("enough"));
  await clock.advance(0);
  t.equal(api.streams.size, 0);
  const told: string[] = [];
  api.migrations.set("a", migrationOf("a", "5"));
  follow(words(told));
  await clock.advance(0);
  t.same(told, ["listed a"]);
});

await tap.test("MigrationFeed shows that it hangs, and is alive while an API server refuses everything", async (t) => {
  const clock = new ManualClock();
  const api = new Lists();
  const loop = new Loops(clock, { feed: 1_800_000 }).add("feed");
  const logger = pino({ level: "silent" });
  const stop = new AbortController();
  const feed = new MigrationFeed({ client: api.client, clock, logger, pulse: loop });
  const ended = feed.follow(() => undefined, stop.signal);
  api.refusal = () => new ApiError("GET /", 503, { text: "no" });
  await clock.advance(7_200_000);
  t.equal(loop.problem(), undefined, "an outage of two hours");
  Object.assign(api.client.transport, { read: () => new Promise(() => undefined) });
  await clock.advance(1_900_000);
  t.match(loop.problem(), /^stuck: no sign of life for \d+ s, and 1800 s are allowed$/);
  stop.abort(new Error("the test is over"));
  void ended;
});

await tap.test("MigrationFeed lists once a minute where every watch fails and lists are answered", async (t) => {
  const { api, clock, follow } = start(t);
  api.migrations.set("a", migrationOf("a", "5"));
  const told: string[] = [];
  api.refusal = (request) => (isWatch(request) ? new ApiError("WATCH", 503, { text: "no upgrade" }) : undefined);
  follow(words(told));
  await clock.advance(30_000);
  api.migrations.set("b", migrationOf("b", "6"));
  await clock.advance(60_000);
  t.equal(told.at(-1), "listed a b", "a new migration waits for no quarter of an hour");
  await clock.advance(510_000);
  t.ok(api.lists.length >= 6 && api.lists.length <= 12, `${api.lists.length} lists in ten minutes`);
  api.refusal = () => undefined;
  await clock.advance(30_000);
  t.equal(api.streams.size, 1);
  const lists = api.lists.length;
  await clock.advance(300_000);
  t.equal(api.lists.length, lists, "a watch that works needs no list");
});
