import tap from "tap";

import { Cleanup } from "../../src/retry/cleanup.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { FakeClock } from "../fake-clock.ts";

function cleanupWith(log: string[], failing: readonly string[] = []): { cleanup: Cleanup; events: MigrationEvent[] } {
  const events: MigrationEvent[] = [];
  const cleanup = new Cleanup({ clock: new FakeClock(), emit: (event) => events.push(event) });
  for (const name of ["a", "b", "c"]) {
    cleanup.defer(`undo ${name}`, `undo ${name} by hand`, async (signal) => {
      log.push(`${name} ${signal.aborted ? "aborted" : "live"}`);
      if (failing.includes(name)) throw new Error(`${name}\n  broke`);
    });
  }
  return { cleanup, events };
}

await tap.test("Cleanup.after() undoes in reverse order and returns what the work returned", async (t) => {
  const log: string[] = [];
  const { cleanup, events } = cleanupWith(log);
  t.equal(await cleanup.after(async () => "result"), "result");
  t.same(log, ["c live", "b live", "a live"]);
  t.same(events, []);
});

await tap.test("Cleanup.after() undoes when the work throws, and throws that error", async (t) => {
  const log: string[] = [];
  const { cleanup, events } = cleanupWith(log);
  const failure = new Error("work");
  await t.rejects(
    cleanup.after(() => Promise.reject(failure)),
    failure,
  );
  t.same(log, ["c live", "b live", "a live"]);
  t.same(events, []);
});

await tap.test("Cleanup.after() undoes what the work deferred while it ran", async (t) => {
  const log: string[] = [];
  const { cleanup } = cleanupWith(log);
  await cleanup.after(async () => cleanup.defer("d", "", async () => void log.push("d")));
  t.equal(log[0], "d");
});

await tap.test("Cleanup.after() tries every step and fails when one failed", async (t) => {
  const log: string[] = [];
  const { cleanup } = cleanupWith(log, ["c", "a"]);
  await t.rejects(
    cleanup.after(async () => undefined),
    {
      code: "CleanupFailed",
      message: "Cannot undo c: c broke; undo c by hand; Cannot undo a: a broke; undo a by hand",
    },
  );
  t.same(log, ["c live", "b live", "a live"]);
});

await tap.test("Cleanup.after() has no result where a check does not pass once everything is undone", async (t) => {
  const log: string[] = [];
  const { cleanup } = cleanupWith(log);
  const lost = new Error("lost");
  cleanup.check(() => {
    if (log.length === 3) throw lost;
  });
  await t.rejects(
    cleanup.after(async () => "result"),
    lost,
  );
});

await tap.test("Cleanup.after() throws what the work throws, whatever a check says", async (t) => {
  const { cleanup } = cleanupWith([]);
  const failure = new Error("work");
  cleanup.check(() => t.fail("there is no result to check"));
  await t.rejects(
    cleanup.after(() => Promise.reject(failure)),
    failure,
  );
});

await tap.test("Cleanup.after() only warns of a step that failed beside an error of the work", async (t) => {
  const { cleanup, events } = cleanupWith([], ["b"]);
  const failure = new Error("work");
  await t.rejects(
    cleanup.after(() => Promise.reject(failure)),
    failure,
  );
  t.same(events, [{ type: "warning", message: "Cannot undo b: b broke; undo b by hand" }]);
});

await tap.test("Cleanup.after() tries a step again until the API server answers, and says so once", async (t) => {
  const clock = new FakeClock();
  const events: MigrationEvent[] = [];
  const cleanup = new Cleanup({ clock, emit: (event) => events.push(event) });
  let tries = 0;
  cleanup.defer("lift the freeze", "lift it by hand", async () => {
    if (++tries <= 6) throw new TransportError("PATCH crd", "https://server", new Error("connection refused"));
  });
  await cleanup.after(async () => undefined);
  t.equal(tries, 7);
  t.equal(events.length, 1);
  t.match(events, [{ type: "warning", message: /^Cannot lift the freeze yet: .*; trying again until it works$/ }]);
  t.same(clock.sleeps, [1_000, 2_000, 4_000, 8_000, 16_000]);
});

await tap.test("Cleanup.after() tries a step again that the page of a proxy refuses, for a while", async (t) => {
  const clock = new FakeClock();
  const page = new ApiError("get crd", 403, { text: "<html><h1>403</h1></html>" });
  let tries = 0;
  const passing = new Cleanup({ clock, emit: () => undefined });
  passing.defer("lift the freeze", "lift it by hand", async () => {
    if (++tries <= 2) throw page;
  });
  await passing.after(async () => undefined);
  t.equal(tries, 3);
  const lasting = new Cleanup({ clock, emit: () => undefined });
  lasting.defer("lift the freeze", "lift it by hand", () => Promise.reject(page));
  const startedAt = clock.monotonic();
  await t.rejects(
    lasting.after(async () => undefined),
    { code: "CleanupFailed" },
  );
  t.ok(clock.monotonic() - startedAt >= 15_000);
  t.ok(clock.monotonic() - startedAt <= 30_000);
});

await tap.test("Cleanup.after() does not repeat what waiting does not help", async (t) => {
  const log: string[] = [];
  const { cleanup } = cleanupWith(log, ["b"]);
  await t.rejects(
    cleanup.after(async () => undefined),
    { code: "CleanupFailed" },
  );
  t.same(log, ["c live", "b live", "a live"]);
});
