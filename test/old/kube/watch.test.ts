import type { ServerResponse } from "node:http";
import { setImmediate as turn } from "node:timers/promises";

import tap from "tap";

import type { KubeObject } from "../../../src/old/kube/client.ts";
import { ApiError } from "../../../src/old/kube/errors.ts";
import { ACCEPT_METADATA, CRDS } from "../../../src/old/kube/resources.ts";
import { type WatchEvent, watchObject } from "../../../src/old/kube/watch.ts";
import { FakeClock } from "../../fake-clock.ts";
import { type LocalServer, sendStatus, startServer } from "./local-server.ts";

// Every server here is local: a real API server cannot be told when to cut a connection, expire a resourceVersion or
// split its bytes.

function line(type: string, resourceVersion: string, label = ""): string {
  const object = { metadata: { name: "a", resourceVersion, labels: { label } } };
  return `${JSON.stringify({ type, object })}\n`;
}

/** Answers the first request with the first of `answers`, and so on; further ones stay open. */
async function serverWith(
  t: Parameters<typeof startServer>[0],
  ...answers: readonly ((response: ServerResponse) => unknown)[]
): Promise<LocalServer> {
  const queue = [...answers];
  return startServer(t, (_, response) => (queue.shift() ?? ((open) => open.flushHeaders()))(response));
}

interface Watch {
  readonly events: WatchEvent<KubeObject>[];
  readonly clock: FakeClock;
  /** Resolves when the watch has ended by itself or after `count` events. */
  readonly ended: Promise<void>;
}

function watch(server: LocalServer, count = Number.POSITIVE_INFINITY, abort = new AbortController()): Watch {
  const events: WatchEvent<KubeObject>[] = [];
  const clock = new FakeClock();
  const options = { name: "a", resourceVersion: "10", signal: abort.signal, clock };
  const read = async (): Promise<void> => {
    for await (const event of watchObject<KubeObject>(server.transport(), CRDS, options)) {
      events.push(event);
      if (events.length >= count) abort.abort(new Error("seen enough"));
    }
  };
  return { events, clock, ended: read() };
}

function versionsOf(events: readonly WatchEvent<KubeObject>[]): readonly string[] {
  return events.map((event) =>
    `${event.type} ${"object" in event ? event.object.metadata.resourceVersion : ""}`.trim(),
  );
}

function startsOf({ seen }: LocalServer): readonly (string | null)[] {
  return seen.map(({ query }) => query.get("resourceVersion"));
}

await tap.test("watchObject() asks for one object, from the given resourceVersion, with bookmarks", async (t) => {
  const server = await serverWith(t, (response) => response.write(line("MODIFIED", "11")));
  await watch(server, 1).ended;
  const [request] = server.seen;
  t.equal(request?.path, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
  t.same(Object.fromEntries(request?.query ?? []), {
    watch: "true",
    allowWatchBookmarks: "true",
    fieldSelector: "metadata.name=a",
    resourceVersion: "10",
    timeoutSeconds: "290",
  });
});

await tap.test(
  "watchObject() without a name asks for all objects, by their metadata where that is asked for",
  async (t) => {
    const server = await serverWith(t, (response) => response.write(line("ADDED", "11")));
    const abort = new AbortController();
    const options = { resourceVersion: "10", accept: ACCEPT_METADATA, signal: abort.signal };
    for await (const event of watchObject<KubeObject>(server.transport(), CRDS, options)) {
      t.equal(event.type, "ADDED");
      abort.abort(new Error("seen enough"));
    }
    const [request] = server.seen;
    t.equal(request?.query.has("fieldSelector"), false);
    t.equal(request?.headers.accept, ACCEPT_METADATA);
  },
);

await tap.test("watchObject() resumes from the last resourceVersion when the connection is cut", async (t) => {
  const server = await serverWith(
    t,
    (response) => response.write(line("ADDED", "11") + line("MODIFIED", "12"), () => response.destroy()),
    (response) => response.end(line("BOOKMARK", "20")),
    (response) => response.write(line("DELETED", "21")),
  );
  const { events, clock, ended } = watch(server, 4);
  await ended;
  t.same(versionsOf(events), ["ADDED 11", "MODIFIED 12", "BOOKMARK", "DELETED 21"]);
  t.same(startsOf(server), ["10", "12", "20"]);
  t.same(clock.sleeps, [500, 500]);
});

await tap.test("watchObject() delivers nothing of an event that was cut off, and resumes before it", async (t) => {
  const server = await serverWith(
    t,
    (response) =>
      response.write(line("MODIFIED", "11") + line("MODIFIED", "12").slice(0, 30), () => response.destroy()),
    (response) => response.end(line("MODIFIED", "12").slice(0, 30)),
    (response) => response.write(line("MODIFIED", "12")),
  );
  const { events, ended } = watch(server, 2);
  await ended;
  t.same(versionsOf(events), ["MODIFIED 11", "MODIFIED 12"]);
  t.same(startsOf(server), ["10", "11", "11"]);
});

const expired: readonly [name: string, answer: (response: ServerResponse) => unknown][] = [
  ["the answer is 410", (response) => sendStatus(response, 410, { reason: "Expired", message: "too old" })],
  [
    "the stream says 410",
    (response) => response.write(`${JSON.stringify({ type: "ERROR", object: { kind: "Status", code: 410 } })}\n`),
  ],
];

for (const [name, answer] of expired) {
  await tap.test(`watchObject() ends with a GAP when ${name}`, async (t) => {
    const server = await serverWith(t, (response) => response.end(line("MODIFIED", "11")), answer);
    const { events, ended } = watch(server);
    await ended;
    t.same(versionsOf(events), ["MODIFIED 11", "GAP"]);
    t.same(startsOf(server), ["10", "11"]);
  });
}

const passing: readonly [name: string, answer: (response: ServerResponse) => unknown][] = [
  ["the answer is 500", (response) => sendStatus(response, 500)],
  ["the answer is 429", (response) => sendStatus(response, 429)],
  ["the server resets", (response) => response.destroy()],
  ["the stream is not JSON", (response) => response.end("<html>\n")],
  [
    "the stream says 500",
    (response) => response.end(`${JSON.stringify({ type: "ERROR", object: { kind: "Status", code: 500 } })}\n`),
  ],
  [
    "the stream has an error without a code",
    (response) => response.end('{"type":"ERROR","object":{"kind":"Status"}}\n'),
  ],
  ["the stream ends at once", (response) => response.end()],
  ["a line does not end", (response) => response.write("x".repeat(20 * 2 ** 20))],
];

for (const [name, answer] of passing) {
  await tap.test(`watchObject() tries again from the same resourceVersion when ${name}`, async (t) => {
    const server = await serverWith(t, answer, (response) => response.write(line("MODIFIED", "11")));
    const { events, ended } = watch(server, 1);
    await ended;
    t.same(versionsOf(events), ["MODIFIED 11"]);
    t.same(startsOf(server), ["10", "10"]);
  });
}

for (const status of [401, 403, 404, 400]) {
  await tap.test(`watchObject() throws when the answer is ${status}`, async (t) => {
    const refuse = (response: ServerResponse): unknown => sendStatus(response, status);
    const server = await serverWith(t, refuse, refuse);
    const { events, ended } = watch(server);
    const error: unknown = await ended.catch((thrown: unknown) => thrown);
    t.ok(error instanceof ApiError);
    t.match(error, { status });
    t.same(events, []);
    t.equal(server.seen.length, status === 401 ? 2 : 1, "refused credentials are tried once more");
  });
}

await tap.test("watchObject() puts events together that come in pieces, inside of characters too", async (t) => {
  const label = "größer-日本-🎉";
  const server = await serverWith(t, async (response) => {
    response.socket?.setNoDelay();
    for (const byte of Buffer.from(line("MODIFIED", "11", label) + line("MODIFIED", "12"))) {
      response.write(Buffer.of(byte));
      await turn();
    }
  });
  const { events, ended } = watch(server, 2);
  await ended;
  t.same(versionsOf(events), ["MODIFIED 11", "MODIFIED 12"]);
  t.match(events[0], { object: { metadata: { labels: { label } } } });
});
