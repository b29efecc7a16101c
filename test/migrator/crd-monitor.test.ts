import type { ServerResponse } from "node:http";
import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../src/api/names.ts";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import type { CrdExpectation } from "../../src/freeze/crd-expectation.ts";
import { CrdMonitor } from "../../src/migrator/crd-monitor.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { StartAgain } from "../../src/retry/start-again.ts";
import { sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const EXPECTED: CrdExpectation = {
  name: "widgets.example.com",
  uid: "u",
  storageVersion: "v1",
  requestVersion: "v1",
  conversion: { strategy: "None" },
  owner: "me",
};
const FROZEN = { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: "me" };

function crd(resourceVersion: string, generation: number, storage = "v1"): CustomResourceDefinition {
  const versions = ["v1alpha1", "v1"].map((name) => ({ name, served: true, storage: name === storage }));
  const metadata = { name: EXPECTED.name, uid: "u", resourceVersion, generation, annotations: FROZEN };
  const names = { plural: "widgets", kind: "Widget" };
  return {
    apiVersion: "v1",
    kind: "CRD",
    metadata,
    spec: { group: "example.com", scope: "Namespaced", names, versions },
  };
}

type Tap = Parameters<typeof startServer>[0];

/**
 * A stand-in for an API server with a watch cache, because a real one cannot be told when to let a watch expire, nor to
 * skip a change; restart-servers.test.ts has the real one. As the real one does after a restart, it refuses to watch from
 * any resourceVersion older than its own first list, also from that of the CRD that a GET has just returned.
 * @param firstList the revision of etcd when the watch cache was filled
 * @param watches answer the watches that are not refused, one each
 */
async function monitorOn(
  t: Tap,
  state: { readonly current: CustomResourceDefinition; readonly firstList: number },
  ...watches: ((response: ServerResponse) => unknown)[]
) {
  let revision = state.firstList;
  const server = await startServer(t, ({ path, query }, response) => {
    if (query.get("watch") !== null) {
      response.flushHeaders();
      return Number(query.get("resourceVersion")) < state.firstList ? expire(response) : watches.shift()?.(response);
    }
    if (path.endsWith(`/${EXPECTED.name}`)) return sendJson(response, 200, state.current);
    // Others write other objects all the time.
    revision++;
    const isAsked = query.get("fieldSelector") === `metadata.name=${EXPECTED.name}`;
    const metadata = { resourceVersion: String(revision) };
    const items = isAsked ? [state.current] : [];
    return sendJson(response, 200, { kind: "CustomResourceDefinitionList", metadata, items });
  });
  const { signal } = new AbortController();
  const broken: unknown[] = [];
  const monitor = new CrdMonitor({
    client: new ApiClient(server.transport()),
    clock: systemClock,
    retrier: new Retrier({ clock: systemClock, random: Math.random }),
    expected: EXPECTED,
    onBroken: (reason) => broken.push(reason),
  });
  t.teardown(() => monitor.stop());
  return { monitor, broken, signal, server };
}

function event(object: CustomResourceDefinition): string {
  return `${JSON.stringify({ type: "MODIFIED", object })}\n`;
}

function expired(): string {
  return `${JSON.stringify({ type: "ERROR", object: { kind: "Status", code: 410, reason: "Expired" } })}\n`;
}

function expire(response: ServerResponse): void {
  response.end(expired());
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) {
    await systemClock.sleep(5);
  }
}

await tap.test("CrdMonitor sees a storage version that went there and back", async (t) => {
  const thereAndBack = (response: ServerResponse): unknown =>
    response.write(event(crd("11", 2, "v1alpha1")) + event(crd("12", 3)));
  const { monitor, broken, signal } = await monitorOn(t, { current: crd("12", 3), firstList: 5 }, thereAndBack);
  monitor.start(crd("10", 1));
  await until(() => broken.length > 0);
  t.match(broken, [{ code: "StorageVersionChanged" }]);
  await t.rejects(monitor.verifyUpTo(crd("12", 3), signal), { code: "StorageVersionChanged" });
});

await tap.test("CrdMonitor accepts harmless edits once it has seen them", async (t) => {
  const { monitor, broken, signal } = await monitorOn(t, { current: crd("12", 2), firstList: 5 }, (response) => {
    setTimeout(() => response.write(event(crd("12", 2))), 100);
  });
  monitor.start(crd("10", 1));
  await t.resolves(monitor.verifyUpTo(crd("12", 2), signal), "it waits until the watch has caught up");
  t.same(broken, []);
});

await tap.test("CrdMonitor bridges a gap in the watch where the generation did not move", async (t) => {
  const state = { current: crd("10", 1), firstList: 15 };
  const { monitor, broken, signal, server } = await monitorOn(t, state, () => undefined);
  monitor.start(crd("10", 1));
  await until(() => server.seen.length >= 3);
  t.equal(server.seen.at(-1)?.query.get("resourceVersion"), "16", "it goes on watching from the list");
  await t.resolves(monitor.verifyUpTo(crd("10", 1), signal));
  t.same(broken, []);
});

await tap.test("CrdMonitor does not hurry where the watch misses changes again and again", async (t) => {
  const state = { current: crd("10", 1), firstList: 15 };
  const { monitor, broken, server } = await monitorOn(t, state, ...Array.from({ length: 1_000 }, () => expire));
  monitor.start(crd("10", 1));
  await until(() => server.seen.length >= 6);
  await systemClock.sleep(500);
  t.ok(server.seen.length < 10, "some requests, not thousands", { requests: server.seen.length });
  t.same(broken, []);
});

await tap.test(
  "A watch gap with a moved generation makes CrdMonitor begin again at step 1, harmless or not",
  async (t) => {
    const { monitor, broken, signal } = await monitorOn(t, { current: crd("15", 3), firstList: 15 });
    monitor.start(crd("10", 1));
    await until(() => broken.length > 0);
    t.ok(broken[0] instanceof StartAgain);
    await t.rejects(monitor.verifyUpTo(crd("15", 3), signal), { code: "WatchFailed" });
  },
);

await tap.test("CrdMonitor bridges a gap after a harmless edit that it has seen", async (t) => {
  const edited = (response: ServerResponse): unknown => response.end(event(crd("16", 2)) + expired());
  const { monitor, broken, signal, server } = await monitorOn(
    t,
    { current: crd("16", 2), firstList: 5 },
    edited,
    () => undefined,
  );
  monitor.start(crd("10", 1));
  await until(() => server.seen.length >= 3);
  await t.resolves(monitor.verifyUpTo(crd("16", 2), signal));
  t.same(broken, []);
});

await tap.test("CrdMonitor ends the run where the CRD is gone after a gap in the watch", async (t) => {
  const other = { ...crd("15", 1), metadata: { ...crd("15", 1).metadata, name: "others.example.com" } };
  const { monitor, broken } = await monitorOn(t, { current: other, firstList: 15 });
  monitor.start(crd("10", 1));
  await until(() => broken.length > 0);
  t.match(broken, [{ code: "CrdReplaced" }]);
});

await tap.test("CrdMonitor ends the run when it may not watch", async (t) => {
  const server = await startServer(t, (_, response) => sendStatus(response, 403));
  const broken: unknown[] = [];
  const monitor = new CrdMonitor({
    client: new ApiClient(server.transport()),
    clock: systemClock,
    retrier: new Retrier({ clock: systemClock, random: Math.random }),
    expected: EXPECTED,
    onBroken: (reason) => broken.push(reason),
  });
  monitor.start(crd("10", 1));
  await until(() => broken.length > 0);
  t.match(broken, [{ status: 403 }]);
  await monitor.stop();
});

await tap.test("CrdMonitor says why the watch lags behind where it fails", async (t) => {
  const server = await startServer(t, (_request, response) => sendStatus(response, 503, { message: "no upgrade" }));
  // Thirty seconds pass in one.
  const clock = { ...systemClock, monotonic: () => systemClock.monotonic() * 30 };
  const monitor = new CrdMonitor({
    client: new ApiClient(server.transport()),
    clock,
    retrier: new Retrier({ clock, random: Math.random }),
    expected: EXPECTED,
    onBroken: () => undefined,
  });
  t.teardown(() => monitor.stop());
  monitor.start(crd("10", 1));
  const { signal } = new AbortController();
  await t.rejects(monitor.verifyUpTo(crd("11", 2), signal), {
    code: "WatchFailed",
    message: /lags behind; it fails: .*no upgrade/,
  });
});
