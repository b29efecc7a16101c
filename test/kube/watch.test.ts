import type { ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";

import tap from "tap";

import type { KubeObject } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { ACCEPT_METADATA, CRDS, LEASES } from "../../src/kube/resources.ts";
import { type WatchEvent, watchObject } from "../../src/kube/watch.ts";
import { FakeClock } from "../fake-clock.ts";
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

await tap.test("watchObject() asks for a part of a namespace, for as long as it is told", async (t) => {
  const server = await serverWith(t, (response) => response.write(line("ADDED", "11")));
  const abort = new AbortController();
  const options = { namespace: "kube-system", labelSelector: "a=b", timeoutSeconds: 3, resourceVersion: "10" };
  for await (const _ of watchObject<KubeObject>(server.transport(), LEASES, { ...options, signal: abort.signal })) {
    abort.abort(new Error("seen enough"));
  }
  const [request] = server.seen;
  t.equal(request?.path, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases");
  t.equal(request?.query.get("labelSelector"), "a=b");
  t.equal(request?.query.get("timeoutSeconds"), "3");
});

await tap.test("watchObject() resumes from the last resourceVersion when the connection is cut", async (t) => {
  const server = await serverWith(
    t,
    async (response) => {
      response.write(line("ADDED", "11") + line("MODIFIED", "12"));
      await delay(20);
      response.destroy();
    },
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
    async (response) => {
      response.write(line("MODIFIED", "11") + line("MODIFIED", "12").slice(0, 30));
      await delay(20);
      response.destroy();
    },
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

const unavailable = (response: ServerResponse): unknown => sendStatus(response, 503);
const ending = (response: ServerResponse): unknown => response.end();
const event = (response: ServerResponse): unknown => response.end(line("MODIFIED", "11"));
const reset = (response: ServerResponse): unknown => response.destroy();

await tap.test("watchObject() waits longer and longer while no watch works, and tells of each failure", async (t) => {
  const failing = Array.from({ length: 7 }, () => unavailable);
  const server = await serverWith(t, ...failing, ending, event, ending, ending);
  const abort = new AbortController();
  const clock = new FakeClock();
  const reasons: unknown[] = [];
  const onFailure = (error: unknown): void => void reasons.push(error instanceof ApiError ? error.status : error);
  const onOpen = (): void => {
    if (server.seen.length > 11) abort.abort(new Error("seen enough"));
  };
  const options = { resourceVersion: "10", signal: abort.signal, clock, onFailure, onOpen };
  const events: WatchEvent<KubeObject>[] = [];
  for await (const one of watchObject<KubeObject>(server.transport(), CRDS, options)) events.push(one);
  t.same(versionsOf(events), ["MODIFIED 11"]);
  t.same(
    reasons,
    Array.from({ length: 7 }, () => 503),
    "one that ends well is no failure",
  );
  const growing = [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000];
  t.same(clock.sleeps, [...growing, 500, 1_000, 2_000], "an event ends the outage");
});

await tap.test("watchObject() is quick again after a watch that stood without an event", async (t) => {
  const clock = new FakeClock();
  const stood = (response: ServerResponse): void => {
    clock.advance(10_000);
    response.destroy();
  };
  const abort = new AbortController();
  const server = await serverWith(t, reset, reset, (response) => {
    response.flushHeaders();
    setTimeout(() => stood(response), 50);
  });
  let failures = 0;
  const onOpen = (): void => {
    if (server.seen.length > 3) abort.abort(new Error("seen enough"));
  };
  const onFailure = (): void => void failures++;
  const options = { resourceVersion: "10", signal: abort.signal, clock, onOpen, onFailure };
  for await (const _ of watchObject<KubeObject>(server.transport(), CRDS, options));
  t.same(clock.sleeps, [500, 1_000, 500]);
  t.equal(failures, 2, "a watch that stood and is cut is opened again without a word");
});

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
      await delay(0);
    }
  });
  const { events, ended } = watch(server, 2);
  await ended;
  t.same(versionsOf(events), ["MODIFIED 11", "MODIFIED 12"]);
  t.match(events[0], { object: { metadata: { labels: { label } } } });
});

await tap.test("watchObject() ends without an event when the signal is aborted", async (t) => {
  const abort = new AbortController();
  const server = await serverWith(t, (response) => {
    response.flushHeaders();
    setTimeout(() => abort.abort(new Error("stop")), 20);
  });
  const { events, ended } = watch(server, undefined, abort);
  await ended;
  t.same(events, []);
});

await tap.test("watchObject() ends when the signal is aborted between two attempts", async (t) => {
  const abort = new AbortController();
  const server = await serverWith(t, (response) => {
    response.end();
    abort.abort(new Error("stop"));
  });
  await watch(server, undefined, abort).ended;
  t.equal(server.seen.length, 1);
});

await tap.test("watchObject() sends nothing when the signal is aborted already", async (t) => {
  const abort = new AbortController();
  abort.abort(new Error("stop"));
  const server = await serverWith(t);
  await watch(server, undefined, abort).ended;
  t.same(server.seen, []);
});

await tap.test("watchObject() opens a watch again that has gone silent, from where it was", async (t) => {
  const server = await serverWith(
    t,
    (response) => response.write(line("MODIFIED", "11")),
    (response) => response.write(line("MODIFIED", "12")),
  );
  const abort = new AbortController();
  const events: WatchEvent<KubeObject>[] = [];
  const options = { name: "a", resourceVersion: "10", signal: abort.signal, clock: new FakeClock(), maxSilenceMs: 50 };
  for await (const event of watchObject<KubeObject>(server.transport(), CRDS, options)) {
    events.push(event);
    if (events.length === 2) abort.abort(new Error("seen enough"));
  }
  t.same(versionsOf(events), ["MODIFIED 11", "MODIFIED 12"]);
  t.same(startsOf(server), ["10", "11"]);
});

await tap.test("watchObject() does not take the time that its reader takes for silence", async (t) => {
  const server = await serverWith(t, (response) => response.write(line("MODIFIED", "11") + line("MODIFIED", "12")));
  const abort = new AbortController();
  const options = {
    name: "a",
    resourceVersion: "10",
    signal: abort.signal,
    clock: new FakeClock(),
    maxSilenceMs: 2_000,
  };
  let events = 0;
  for await (const _ of watchObject<KubeObject>(server.transport(), CRDS, options)) {
    await delay(2_500);
    if (++events === 2) abort.abort(new Error("seen enough"));
  }
  t.same(startsOf(server), ["10"]);
});

await tap.test("watchObject() ends with a gap when it is old, so that everything is listed again", async (t) => {
  const ends = Array.from({ length: 20 }, () => (response: ServerResponse) => response.end());
  const server = await serverWith(t, ...ends);
  const { signal } = new AbortController();
  const events: WatchEvent<KubeObject>[] = [];
  const options = { resourceVersion: "10", signal, clock: new FakeClock(), retryMs: 100_000 };
  for await (const event of watchObject<KubeObject>(server.transport(), CRDS, options)) events.push(event);
  t.same(events, [{ type: "GAP" }]);
  t.equal(server.seen.length, 9, "after a quarter of an hour");
});
