import type { ServerResponse } from "node:http";
import tap, { type Test } from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { RestoredObjects } from "../../src/migrator/restored-objects.ts";
import { SeenState } from "../../src/migrator/rewrite/seen-state.ts";
import { Pacer } from "../../src/retry/pacer.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";
import { type SeenRequest, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

// The server is local: test/integration/leases-elsewhere.test.ts restores a real etcd, at one moment alone.

const WRITTEN = { name: "a", namespace: "ns", uid: "uid-a", resourceVersion: "120" };

function list(resourceVersion: string, ...items: readonly object[]): object {
  return { kind: "PartialObjectMetadataList", metadata: { resourceVersion }, items };
}

async function restored(t: Test, answer: (request: SeenRequest, response: ServerResponse) => unknown) {
  const server = await startServer(t, answer);
  const clock = new FakeClock();
  const context = {
    client: new ApiClient(server.transport()),
    clock,
    pacer: new Pacer({ clock, maxInFlight: 1, maxQps: Number.POSITIVE_INFINITY }),
    retrier: new Retrier({ clock, random: () => 0.5 }),
    signal: new AbortController().signal,
  };
  const resource = { group: "example.com", version: "v1", resource: "widgets" };
  const seen = new SeenState();
  const objects = new RestoredObjects(context, { resource, otherVersions: [] }, seen);
  return { clock, context, objects, seen, server };
}

await tap.test("RestoredObjects asks nothing where nothing was seen", async (t) => {
  const { objects, server } = await restored(t, (_, response) => sendStatus(response, 500));
  await objects.assertNone();
  t.same(server.seen, []);
});

await tap.test("RestoredObjects looks for the object that was written last, by its name", async (t) => {
  const { objects, seen, server } = await restored(t, (_, response) =>
    sendJson(response, 200, list("1000000000", { metadata: { ...WRITTEN, resourceVersion: "90" } })),
  );
  seen.wrote(WRITTEN);
  await t.rejects(objects.assertNone(), {
    name: "StartAgain",
    message: /as after etcd was restored from a backup: "a" is at resourceVersion 90, and was written at 120/,
  });
  t.match(server.seen, [{ path: "/apis/example.com/v1/namespaces/ns/widgets" }]);
  t.equal(server.seen[0]?.query.get("fieldSelector"), "metadata.name=a");
});

await tap.test(
  "RestoredObjects sees a write that is gone where another one followed with a higher resourceVersion",
  async (t) => {
    const stored = new Map([["a", "120"]]);
    const { objects, seen } = await restored(t, ({ query }, response) => {
      const name = query.get("fieldSelector")?.replace("metadata.name=", "") ?? "";
      const metadata = { name, namespace: "ns", uid: `uid-${name}`, resourceVersion: stored.get(name) };
      sendJson(response, 200, list("2000", { metadata }));
    });
    seen.wrote(WRITTEN);
    await objects.assertNone();
    stored.set("a", "90");
    stored.set("b", "1130");
    seen.wrote({ ...WRITTEN, name: "b", uid: "uid-b", resourceVersion: "1130" });
    await t.rejects(objects.assertNone(), {
      name: "StartAgain",
      message: /"a" is at resourceVersion 90, and was written at 120/,
    });
  },
);

await tap.test("RestoredObjects compares resourceVersions where nothing was written", async (t) => {
  let revision = "120";
  const { objects, seen, server } = await restored(t, (_, response) => sendJson(response, 200, list(revision)));
  seen.listed("120");
  await objects.assertNone();
  revision = "119";
  await t.rejects(objects.assertNone(), { name: "StartAgain", message: /at resourceVersion 119, and were at 120/ });
  t.equal(server.seen[0]?.query.get("limit"), "1");
});

await tap.test(
  "RestoredObjects looks again where a list is behind, as one through another kine for a second",
  async (t) => {
    const revisions = ["118", "119", "121"];
    const { clock, objects, seen, server } = await restored(t, (_, response) =>
      sendJson(response, 200, list(revisions.shift() ?? "", { metadata: WRITTEN })),
    );
    seen.wrote(WRITTEN);
    await t.resolves(objects.assertNone());
    t.equal(server.seen.length, 3);
    t.equal(clock.monotonic(), 1_000, "twice half a second");
  },
);

await tap.test(
  "RestoredObjects takes a list that stays behind for a restore, whatever the object of the last write",
  async (t) => {
    let revision = 110;
    const { clock, objects, seen } = await restored(t, (_, response) =>
      sendJson(response, 200, list(String(revision++), { metadata: WRITTEN })),
    );
    seen.wrote(WRITTEN);
    seen.listed("150");
    await t.rejects(objects.assertNone(), { name: "StartAgain", message: /at resourceVersion 114, and were at 150/ });
    t.equal(clock.monotonic(), 2_000);
  },
);

await tap.test(
  "RestoredObjects takes an object from before its write for a restore where the list has caught up",
  async (t) => {
    const { clock, objects, seen } = await restored(t, (_, response) =>
      sendJson(response, 200, list("130", { metadata: { ...WRITTEN, resourceVersion: "90" } })),
    );
    seen.wrote(WRITTEN);
    await t.rejects(objects.assertNone(), { name: "StartAgain", message: /"a" is at resourceVersion 90/ });
    t.equal(clock.monotonic(), 0, "at once");
  },
);

await tap.test("RestoredObjects does not compare with what was seen while it looked", async (t) => {
  const { objects, seen } = await restored(t, (_, response) => {
    seen.listed("200");
    sendJson(response, 200, list("150"));
  });
  seen.listed("120");
  await t.resolves(objects.assertNone());
});

await tap.test("RestoredObjects looks once in a while as objects are rewritten", async (t) => {
  const { clock, objects, seen, server } = await restored(t, (_, response) => sendJson(response, 200, list("120")));
  seen.listed("120");
  for (let second = 0; second < 20; second++) {
    await objects.assertNoneOfLate();
    await clock.sleep(1_000);
  }
  t.equal(server.seen.length, 3);
});

await tap.test("RestoredObjects asks within the limit on requests at the same time", async (t) => {
  const { context, objects, seen, server } = await restored(t, (_, response) => sendJson(response, 200, list("130")));
  const { promise, resolve } = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  const write = (): Promise<void> => {
    begun.resolve();
    return promise;
  };
  const work = context.pacer.forEach(["an object"], write, context.signal);
  await begun.promise;
  seen.wrote(WRITTEN);
  const look = objects.assertNone();
  await new Promise((later) => setTimeout(later, 50));
  t.same(server.seen, [], "an object is written");
  resolve();
  await Promise.all([work, look]);
  t.equal(server.seen.length, 1);
});
