import type { ServerResponse } from "node:http";
import { setImmediate } from "node:timers/promises";
import tap from "tap";
import { isNewer } from "../../../src/api/resource-version.ts";

import type { Counts } from "../../../src/migrator/rewrite/counts.ts";
import type { RewritePassOptions, Settled } from "../../../src/migrator/rewrite/rewrite-pass.ts";
import { MAX_SET_ASIDE } from "../../../src/migrator/rewrite/set-aside.ts";
import { type SeenRequest, sendJson, sendStatus } from "../../kube/local-server.ts";
import { DENIED, pass } from "./pass-fixture.ts";

await tap.test("RewritePass tells of each object what it was last written with, where it wrote it", async (t) => {
  const { advances } = await pass(t, { count: 3, pageSize: 2, accepts: (name) => name !== "w1" });
  t.same(
    advances.map(({ done, watermark }) => [done, watermark]),
    [1, 2, 3].map((done) => [done, "100"]),
  );
  t.same(advances.map(({ written }) => written ?? "").toSorted(), ["", "50", "50"]);
});

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

await tap.test(
  "RewritePass has no object wait that is tried once more where another one has ended the pass",
  async (t) => {
    const tries = new Map<string, number>();
    let goneOn = 0;
    const rewrite: RewritePassOptions["rewrite"] = async ({ waitSignal }, { name }) => {
      const tried = (tries.get(name) ?? 0) + 1;
      tries.set(name, tried);
      if (tried === 1) {
        return { kind: "failed", reason: DENIED };
      }
      if (name === "w1") {
        throw new Error("a webhook holds each write");
      }
      // Others wait for their turn, as behind a webhook.
      await setImmediate();
      goneOn += waitSignal.aborted ? 0 : 1;
      return { kind: "current" };
    };
    const run = pass(t, { count: 4, pageSize: 4, accepts: () => true, rewrite });
    await t.rejects(run, { message: "a webhook holds each write" });
    t.equal(goneOn, 0, "what waits is told");
  },
);

await tap.test("RewritePass keeps a bounded number of rejected objects for a second try", async (t) => {
  const count = MAX_SET_ASIDE + 50;
  const { tally, tries } = await pass(t, { count, pageSize: 500, accepts: () => false });
  t.match(tally.counts, { done: count, failed: count });
  t.equal(tries.length, count + MAX_SET_ASIDE);
});

/** Refuses one continue token as damaged, once: the API server says nothing of where the list goes on. */
function damagedToken() {
  const refusal = {
    isSent: false,
    onList: ({ query }: SeenRequest, response: ServerResponse): boolean => {
      if (query.get("continue") !== "4" || refusal.isSent) return false;
      refusal.isSent = true;
      sendStatus(response, 400, { reason: "BadRequest", message: "continue key is not valid" });
      return true;
    },
  };
  return refusal;
}

await tap.test("RewritePass counts each object once when its list begins at the first object again", async (t) => {
  const refusal = damagedToken();
  const totals: (number | undefined)[] = [];
  const { tally, tries } = await pass(t, {
    count: 9,
    pageSize: 2,
    accepts: (name) => name !== "w1",
    onList: refusal.onList,
    onObject: (counts) => totals.push(counts.total),
  });
  t.ok(refusal.isSent);
  t.match(tally.counts, { done: 9, migrated: 8, newer: 0, failed: 1, total: 9 });
  t.same(tally.failures, [{ namespace: "ns", name: "w1", reason: DENIED }]);
  t.same(
    [...new Set(totals)].filter((total) => total !== undefined && total > 9),
    [],
    "nor more in all",
  );
  t.equal(tries.filter((name) => name === "w0").length, 1, "what is written is not written again");
});

for (const { name, answer } of [
  { name: "sends it back to the first object", answer: () => ({ code: 400, metadata: {} }) },
  {
    name: "gives another one that is refused as well",
    answer: (nth: number) => ({ code: 410, metadata: { continue: `${9_000 + nth}` } }),
  },
]) {
  await tap.test(
    `RewritePass gives up a list where every continue token is refused, and the refusal ${name}`,
    async (t) => {
      let lists = 0;
      const run = pass(t, {
        count: 6,
        pageSize: 2,
        accepts: () => true,
        onList: ({ query }, response) => {
          lists++;
          if (query.get("continue") === null || lists > 500) return false;
          const { code, metadata } = answer(lists);
          sendStatus(response, code, { message: "no query may be that long", metadata });
          return true;
        },
      });
      await t.rejects(run, {
        code: "ApiRequestFailed",
        message: /continue tokens are refused.*no query may be that long/,
      });
      t.ok(lists < 20, `${lists} lists`);
    },
  );
}

for (const [how, tokens] of [
  ["answers with its own continue token", { "2": "2" }],
  ["is one of two whose continue tokens come in turn", { "2": "A", A: "B", B: "A" }],
] as const) {
  await tap.test(`RewritePass gives up a list whose page ${how}`, async (t) => {
    let lists = 0;
    const run = pass(t, {
      count: 6,
      pageSize: 2,
      accepts: () => true,
      // No API server does this; a proxy that caches by path would.
      onList: ({ query }, response) => {
        const token = query.get("continue");
        if (token === null || ++lists > 500) return false;
        sendJson(response, 200, {
          kind: "PartialObjectMetadataList",
          metadata: { resourceVersion: "100", continue: (tokens as Record<string, string>)[token] },
          items: [],
        });
        return true;
      },
    });
    await t.rejects(run, { code: "ApiRequestFailed", message: /widgets to its end: .* so the list never ends/ });
    t.ok(lists < 10, `${lists} lists`);
  });
}

await tap.test(
  "RewritePass goes on where every continue token expires, but not the one that comes instead",
  async (t) => {
    let refused = 0;
    const { tally, clock } = await pass(t, {
      count: 40,
      pageSize: 2,
      accepts: () => true,
      onList: ({ query }, response) => {
        const token = query.get("continue") ?? "";
        if (token === "" || token.startsWith("0")) return false;
        refused++;
        sendStatus(response, 410, { reason: "Expired", message: "too old", metadata: { continue: `0${token}` } });
        return true;
      },
    });
    t.match(tally.counts, { done: 40, migrated: 40 });
    t.equal(refused, 19);
    t.same(clock.sleeps, [], "nor is it slowed down");
  },
);

await tap.test("RewritePass asks for smaller pages when the API server gives up on one", async (t) => {
  const limits: number[] = [];
  const { tally } = await pass(t, {
    count: 30,
    pageSize: 16,
    accepts: () => true,
    onList: ({ query }, response) => {
      limits.push(Number(query.get("limit")));
      if (Number(query.get("limit")) <= 3) return false;
      sendStatus(response, 504, {
        reason: "Timeout",
        message: "Timeout: request did not complete within requested timeout",
      });
      return true;
    },
  });
  t.match(tally.counts, { done: 30, migrated: 30 });
  t.same(limits.slice(0, 5), [1, 16, 8, 4, 2], "the probe, and then half as many each time");
});

await tap.test("RewritePass resumes at the page after the last one that is done, whatever its size was", async (t) => {
  const { points } = await pass(t, { count: 9, pageSize: 4, accepts: () => true });
  t.same(
    points.map(({ continueToken }) => continueToken),
    ["4", "8", undefined],
  );
});

for (const [what, rejectedAt] of [
  ["the last whole page", undefined],
  ["the first object, since one was rejected before", "w1"],
] as const) {
  await tap.test(`RewritePass counts each object once and completely when an attempt goes on at ${what}`, async (t) => {
    const written = new Set<string>();
    const kept: Settled[] = [];
    const all = { count: 9, pageSize: 2, written };
    const first = pass(t, {
      ...all,
      accepts: (name) => name !== rejectedAt,
      onPage: (left) => {
        if (kept.length === 2) {
          throw new Error("broken off");
        }
        kept.push(left);
      },
    });
    await t.rejects(first, { message: "broken off" });
    const [, left] = kept;
    t.equal(left?.point.continueToken === undefined, rejectedAt !== undefined);
    const totals: (number | undefined)[] = [];
    const onObject = (counts: Readonly<Counts>): void => void totals.push(counts.total);
    const { tally } = await pass(t, { ...all, left, accepts: () => true, onObject });
    t.match(tally.counts, { done: 9, failed: 0, current: 0, total: 9 });
    // What the first attempt did after its last whole page was written since the watermark.
    t.equal(tally.counts.migrated + tally.counts.newer, 9);
    t.ok(tally.counts.migrated >= 4, `${tally.counts.migrated} migrated: what the first attempt kept, at least`);
    t.notOk(
      totals.some((total = 0) => total > 9),
      "nor more in all",
    );
  });
}

await tap.test("RewritePass hands objects beyond the watermark to work of another kind, too", async (t) => {
  const written = new Set(["w1", "w2"]);
  const { tally: rewritten } = await pass(t, { count: 3, pageSize: 2, accepts: () => true, written: new Set(written) });
  t.match(rewritten.counts, { migrated: 1, newer: 2 });
  const handed: string[] = [];
  const rewrite: RewritePassOptions["rewrite"] = async (_context, { name }) => {
    handed.push(name);
    return { kind: "current" };
  };
  const { tally } = await pass(t, { count: 3, pageSize: 2, accepts: () => true, written, rewrite });
  t.same(handed.toSorted(), ["w0", "w1", "w2"]);
  t.match(tally.counts, { current: 3, newer: 0 });
});

await tap.test("RewritePass counts from zero where what an earlier attempt left is void", async (t) => {
  const kept: Settled[] = [];
  await pass(t, { count: 4, pageSize: 2, accepts: () => true, onPage: (left) => void kept.push(left) });
  const [left] = kept;
  // etcd was restored from a backup: it counts from an older revision.
  const point = { watermark: "5000", continueToken: "2" };
  const { tally } = await pass(t, {
    count: 4,
    pageSize: 2,
    accepts: () => true,
    left: left === undefined ? undefined : { ...left, point },
  });
  t.match(tally.counts, { done: 4, migrated: 4, total: 4 });
});

/** As a conversion of managedFields goes about an object whose entries stay as they are: it is looked at in any case, and written once. */
function keepingFields(writes: string[]): RewritePassOptions["rewrite"] {
  return async ({ watermark }, { name, resourceVersion }) => {
    const keptFields = "not as wanted";
    if (isNewer(resourceVersion, watermark)) {
      return { kind: "newer", keptFields };
    }
    writes.push(name);
    return { kind: "migrated", changed: false, keptFields };
  };
}

await tap.test(
  "RewritePass counts managedFields that are kept once when its list begins at the first object again",
  async (t) => {
    const refusal = damagedToken();
    const written = new Set<string>();
    const writes: string[] = [];
    const { tally } = await pass(t, {
      count: 9,
      pageSize: 2,
      accepts: () => true,
      written,
      rewrite: keepingFields(writes),
      onList: (request, response) => {
        writes.forEach((name) => written.add(name));
        return refusal.onList(request, response);
      },
    });
    t.ok(refusal.isSent);
    t.match(tally.counts, { done: 9, migrated: 9, newer: 0, total: 9 });
    t.equal(tally.kept, 9);
    t.same(tally.keptObjects.map(({ name }) => name).toSorted(), [...writes].toSorted());
  },
);

await tap.test(
  "RewritePass counts an object once whose managedFields are converted after the list began at the first object again",
  async (t) => {
    const refusal = damagedToken();
    const written = new Set<string>();
    const { tally } = await pass(t, {
      count: 9,
      pageSize: 2,
      accepts: () => true,
      written,
      isDueLate: () => true,
      // As where the conversion met an API server that was busy, and does so no more.
      rewrite: async (_, { name }) => {
        written.add(name);
        return { kind: "migrated", changed: false };
      },
      onList: refusal.onList,
    });
    t.ok(refusal.isSent);
    t.match(tally.counts, { done: 9, migrated: 9, newer: 0, total: 9 });
  },
);

await tap.test("RewritePass tells of each page before an object of it is written", async (t) => {
  const order: string[] = [];
  await pass(t, {
    count: 4,
    pageSize: 2,
    accepts: () => true,
    onObjectsRead: () => order.push("page"),
    rewrite: async (_, { name }) => {
      order.push(name);
      return { kind: "current" };
    },
  });
  t.same(order, ["page", "w0", "w1", "page", "w2", "w3"]);
});

await tap.test(
  "RewritePass gives a later run no token that lies beyond an object whose managedFields were kept",
  async (t) => {
    const lefts: Settled[] = [];
    const onPage = (left: Settled): void => void lefts.push(left);
    const options = { count: 5, pageSize: 2, accepts: () => true, onPage };
    await pass(t, { ...options, rewrite: keepingFields([]) });
    t.same([...new Set(lefts.map(({ point }) => point.continueToken))], [undefined]);
    const [left] = lefts;
    t.equal(left?.tally.kept, 2, "of the page that is done");
    const written = new Set(["w0", "w1"]);
    const { tally } = await pass(t, { ...options, left, written, rewrite: keepingFields([]) });
    t.match(tally.counts, { done: 5, migrated: 5, newer: 0, total: 5 });
    t.equal(tally.kept, 5);
  },
);
