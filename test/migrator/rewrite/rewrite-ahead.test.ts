import tap from "tap";

import type { Advance } from "../../../src/retry/run-budget.ts";
import { rewriteObject } from "../../../src/migrator/rewrite/rewrite.ts";
import type { RewritePassOptions, Settled } from "../../../src/migrator/rewrite/rewrite-pass.ts";
import { pass } from "./pass-fixture.ts";

/** Rewrites as usual, but w0 only once `released` is. */
const heldUntil =
  (released: Promise<void>): RewritePassOptions["rewrite"] =>
  async (context, object) => {
    if (object.name === "w0") await released;
    return rewriteObject(context, object);
  };

await tap.test("RewritePass lists the next page while the objects of one are under way", async (t) => {
  const listed = Promise.withResolvers<void>();
  const { tally } = await pass(t, {
    count: 4,
    pageSize: 2,
    accepts: () => true,
    onList: ({ query }) => {
      if (query.get("continue") === "2") listed.resolve();
      return false;
    },
    rewrite: heldUntil(listed.promise),
  });
  t.match(tally.counts, { done: 4, migrated: 4, total: 4 });
});

await tap.test(
  "RewritePass keeps of each page what was done up to its end, whatever later pages came to",
  async (t) => {
    const released = Promise.withResolvers<void>();
    const kept: Settled[] = [];
    const { advances } = await pass(t, {
      count: 8,
      pageSize: 2,
      accepts: (name) => {
        // The last object of the fourth page, which is as far as the pass gets without w0.
        if (name === "w7") released.resolve();
        return true;
      },
      rewrite: heldUntil(released.promise),
      onPage: (left) => void kept.push(left),
    });
    t.same(
      kept.map(({ point: { continueToken }, position, tally: { counts } }) => [
        continueToken,
        position.listed,
        counts.done,
      ]),
      [
        ["2", 2, 2],
        ["4", 4, 4],
        ["6", 6, 6],
        [undefined, 8, 8],
      ],
    );
    t.equal(advances.length, 8);
  },
);

await tap.test("RewritePass goes no further than four pages without one object", async (t) => {
  const released = Promise.withResolvers<void>();
  const begun: string[] = [];
  const rewrite: RewritePassOptions["rewrite"] = async (context, object) => {
    begun.push(object.name);
    if (begun.length === 8) setTimeout(() => released.resolve(), 50);
    if (object.name === "w0") {
      await released.promise;
      t.equal(begun.length, 8);
    }
    return rewriteObject(context, object);
  };
  const { tally } = await pass(t, { count: 20, pageSize: 2, accepts: () => true, rewrite });
  t.match(tally.counts, { done: 20, migrated: 20 });
});

await tap.test("RewritePass begins no object after it could not keep how far it is", async (t) => {
  const advances: Advance[] = [];
  const run = pass(t, {
    count: 400,
    pageSize: 2,
    accepts: () => true,
    onAdvance: (advance) => void advances.push(advance),
    onPage: () => Promise.reject(new Error("the Lease is lost")),
  });
  await t.rejects(run, { message: "the Lease is lost" });
  t.ok(advances.length < 20, `${advances.length} objects`);
});

await tap.test("RewritePass counts no object twice in the total while a page is being kept", async (t) => {
  const [keeping, listed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const { tally } = await pass(t, {
    count: 15,
    pageSize: 5,
    accepts: () => true,
    // All four places are taken by the second page until the first one is being kept, which takes until the last one is begun.
    rewrite: async (context, object) => {
      if (["w5", "w6", "w7", "w8"].includes(object.name)) await keeping.promise;
      if (object.name === "w10") listed.resolve();
      return rewriteObject(context, object);
    },
    onPage: async ({ point: { continueToken } }) => {
      if (continueToken === "5") {
        keeping.resolve();
        await listed.promise;
      }
    },
  });
  t.match(tally.counts, { done: 15, total: 15 });
});

await tap.test("RewritePass waits for no other try of an object once it failed for another one", async (t) => {
  let waits = 0;
  const run = pass(t, {
    count: 2,
    pageSize: 2,
    accepts: () => true,
    rewrite: async ({ clock, signal, waitSignal }, { name }) => {
      if (name === "w1") throw new Error("the Lease is lost");
      await t.rejects(
        async () => {
          for (; waits < 20; waits++) await clock.sleep(10_000, waitSignal);
        },
        { message: "the Lease is lost" },
      );
      t.notOk(signal.aborted, "a write that was sent goes on");
      throw waitSignal.reason;
    },
  });
  await t.rejects(run, { message: "the Lease is lost" });
  t.ok(waits < 3, `${waits} waits`);
});
