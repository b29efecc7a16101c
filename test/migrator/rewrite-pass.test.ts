import tap, { type Test } from "tap";

import { ApiClient } from "../../src/kube/client.ts";
import type { ResumePoint } from "../../src/migrator/checkpoint.ts";
import { Tally } from "../../src/migrator/counts.ts";
import { Pacer } from "../../src/migrator/pacer.ts";
import { Retrier } from "../../src/migrator/retrier.ts";
import { RewritePass } from "../../src/migrator/rewrite-pass.ts";
import { MAX_SET_ASIDE } from "../../src/migrator/set-aside.ts";
import { FakeClock } from "../fake-clock.ts";
import { type SeenRequest, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

// The server is local: what a run keeps for a later one while an object waits for its second try, and what it does with
// more such objects than it keeps, cannot be seen on a real one.

const DENIED = 'admission webhook "own.example.com" denied the request: no';

interface Pass {
  readonly tally: Tally;
  readonly points: readonly ResumePoint[];
  readonly clock: FakeClock;
  /** Names of the objects that were written, in order, refused tries included. */
  readonly tries: readonly string[];
}

/** Runs a pass over `count` objects on pages of `pageSize`. */
async function pass(
  t: Test,
  options: {
    readonly count: number;
    readonly pageSize: number;
    readonly accepts: (name: string, tried: number) => boolean;
  },
): Promise<Pass> {
  const { count, pageSize, accepts } = options;
  const tries: string[] = [];
  const server = await startServer(t, (request, response) => {
    if (request.method === "GET") {
      sendJson(response, 200, pageOf(request, count));
      return;
    }
    const name = request.path.split("/").at(-1) ?? "";
    tries.push(name);
    if (accepts(name, tries.filter((tried) => tried === name).length)) {
      sendJson(response, 200, { kind: "PartialObjectMetadata", metadata: metadataOf(name, "101") });
    } else {
      sendStatus(response, 404, { reason: "NotFound", message: DENIED, details: { name } });
    }
  });
  const clock = new FakeClock();
  const tally = new Tally();
  const points: ResumePoint[] = [];
  const rewriting = new RewritePass({
    client: new ApiClient(server.transport()),
    clock,
    retrier: new Retrier({ clock, random: () => 0.5 }),
    pacer: new Pacer({ clock, maxInFlight: 4, maxQps: Number.POSITIVE_INFINITY }),
    resource: { group: "example.com", version: "v2", resource: "widgets" },
    kind: "Widget",
    otherVersions: [],
    pageSize,
    dryRun: false,
    tally,
    emit: () => undefined,
    signal: new AbortController().signal,
    onPage: async (point) => {
      points.push(point);
    },
    onObject: () => undefined,
  });
  await rewriting.run();
  return { tally, points, clock, tries };
}

function metadataOf(name: string, resourceVersion = "50") {
  return { name, namespace: "ns", uid: `uid-${name}`, resourceVersion };
}

function pageOf({ query }: SeenRequest, count: number) {
  const begin = Number(query.get("continue") ?? 0);
  const end = Math.min(count, begin + Number(query.get("limit")));
  const items = Array.from({ length: end - begin }, (_, index) => ({ metadata: metadataOf(`w${begin + index}`) }));
  const metadata = { resourceVersion: "100", ...(end < count ? { continue: String(end) } : {}) };
  return { kind: "PartialObjectMetadataList", metadata, items };
}

await tap.test("RewritePass tries a rejected object once more, after all others", async (t) => {
  const { tally, tries, clock } = await pass(t, {
    count: 6,
    pageSize: 2,
    accepts: (name, tried) => name !== "w1" || tried === 2,
  });
  t.equal(tries.length, 7);
  t.equal(tries.at(-1), "w1");
  t.match(tally.counts, { done: 6, migrated: 6, failed: 0 });
  t.same(clock.sleeps, [1_000], "a moment later, and no slot was held for it");
});

await tap.test("RewritePass counts an object that is rejected twice, once and by its name", async (t) => {
  const { tally, tries } = await pass(t, { count: 6, pageSize: 2, accepts: (name) => name !== "w1" });
  t.equal(tries.filter((name) => name === "w1").length, 2);
  t.match(tally.counts, { done: 6, migrated: 5, failed: 1, gone: 0 });
  t.same(tally.failures, [{ namespace: "ns", name: "w1", reason: DENIED }]);
});

await tap.test("RewritePass gives a later run no token that lies beyond an object that was set aside", async (t) => {
  const { points } = await pass(t, { count: 6, pageSize: 2, accepts: (name, tried) => name !== "w3" || tried === 2 });
  t.same(points, [{ watermark: "100", continueToken: "2" }, { watermark: "100" }, { watermark: "100" }]);
});

await tap.test("RewritePass keeps a bounded number of rejected objects for a second try", async (t) => {
  const count = MAX_SET_ASIDE + 50;
  const { tally, tries } = await pass(t, { count, pageSize: 500, accepts: () => false });
  t.match(tally.counts, { done: count, failed: count });
  t.equal(tries.length, count + MAX_SET_ASIDE);
});
