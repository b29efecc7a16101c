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

const METADATA = { apiVersion: "meta.k8s.io/v1", kind: "PartialObjectMetadata" };

function list(resourceVersion: string, ...items: readonly object[]): object {
  return { kind: "PartialObjectMetadataList", metadata: { resourceVersion }, items };
}

/** Answers lists, and a GET of an object by what storage has: its resourceVersion, or none. */
function answersOf(listed: (request: SeenRequest) => object, stored: ReadonlyMap<string, string>) {
  return (request: SeenRequest, response: ServerResponse): void => {
    const name = request.path.split("/widgets/")[1];
    const resourceVersion = name === undefined ? undefined : stored.get(name);
    if (name === undefined) sendJson(response, 200, listed(request));
    else if (resourceVersion === undefined) sendStatus(response, 404);
    else
      sendJson(response, 200, {
        ...METADATA,
        metadata: { name, namespace: "ns", uid: `uid-${name}`, resourceVersion },
      });
  };
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
  const listed = (): object => list("1000000000", { metadata: { ...WRITTEN, resourceVersion: "90" } });
  const { objects, seen, server } = await restored(t, answersOf(listed, new Map([["a", "90"]])));
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
    const listed = ({ query }: SeenRequest): object => {
      const name = query.get("fieldSelector")?.replace("metadata.name=", "") ?? "";
      return list("2000", {
        metadata: { name, namespace: "ns", uid: `uid-${name}`, resourceVersion: stored.get(name) },
      });
    };
    const { objects, seen } = await restored(t, answersOf(listed, stored));
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

const BEHIND = () => list("110", { metadata: { ...WRITTEN, resourceVersion: "90" } });

await tap.test(
  "RestoredObjects believes storage where a list is from before a write, as one kine of several answers",
  async (t) => {
    const { objects, seen, server } = await restored(t, answersOf(BEHIND, new Map([["a", "120"]])));
    seen.wrote(WRITTEN);
    await t.resolves(objects.assertNone());
    t.match(server.seen.at(-1), { path: "/apis/example.com/v1/namespaces/ns/widgets/a" });
    t.equal(server.seen.at(-1)?.query.get("resourceVersion"), null, "storage answers, and no watch cache");
  },
);

for (const [stored, what] of [
  ["90", "the state before the write"],
  ["121", "a later write, which may be of after a restore"],
  [undefined, "no such object"],
] as const) {
  await tap.test(
    `RestoredObjects has a list from before a write confirmed by storage, which has ${what}`,
    async (t) => {
      const objectsStored = new Map(stored === undefined ? [] : [["a", stored]]);
      const { objects, seen } = await restored(t, answersOf(BEHIND, objectsStored));
      seen.wrote(WRITTEN);
      await t.rejects(objects.assertNone(), { name: "StartAgain", message: /at resourceVersion 110, and were at 120/ });
    },
  );
}

await tap.test("RestoredObjects compares resourceVersions where nothing was written", async (t) => {
  let revision = "120";
  const { objects, seen, server } = await restored(t, (_, response) => sendJson(response, 200, list(revision)));
  seen.listed("120");
  await objects.assertNone();
  revision = "119";
  await t.rejects(objects.assertNone(), { name: "StartAgain", message: /at resourceVersion 119, and were at 120/ });
  t.equal(server.seen[0]?.query.get("limit"), "1");
});

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
