import tap from "tap";
import { KsvmError } from "../../src/errors.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import type { ApiServers } from "../../src/apiservers/api-servers.ts";
import { type AskOptions, askAll, type CheckFailure, checkFailureOf, SAMPLES } from "../../src/apiservers/ask-all.ts";
import { FakeClock } from "../fake-clock.ts";

const LAG: CheckFailure = { reason: "it lags", silent: false };
const SILENCE: CheckFailure = { reason: "no answer", silent: true };
const { signal } = new AbortController();

/** Clients of which only the name is used: the checks here ask nobody. */
function clientOf(server: string, onClose: () => void = () => undefined): ApiClient {
  const close = async (): Promise<void> => onClose();
  return { transport: { server, close } } as unknown as ApiClient;
}

function optionsFor(clock: FakeClock, spreadMs = 0): AskOptions {
  return {
    clock,
    signal,
    spreadMs,
    timeoutMs: 10_000,
    errorOf: (server, reason) => new KsvmError("NotConverged", `${server}: ${reason}`),
  };
}

/** Answers with each of `results` in turn, then passes. */
function checks(...results: readonly (CheckFailure | undefined)[]): () => Promise<CheckFailure | undefined> {
  const queue = [...results];
  return async () => queue.shift();
}

const ONE: ApiServers = { mode: "each", clients: [clientOf("a")] };
const EACH: ApiServers = { mode: "each", clients: [clientOf("a"), clientOf("b")] };

await tap.test("askAll() asks each API server until it passes", async (t) => {
  const asked: string[] = [];
  const pending = new Map([["b", [LAG, LAG]]]);
  const check = async ({ transport }: ApiClient): Promise<CheckFailure | undefined> => {
    asked.push(transport.server);
    return pending.get(transport.server)?.shift();
  };
  t.same(await askAll(EACH, check, optionsFor(new FakeClock())), { lagged: true, silent: false });
  t.same(
    asked.toSorted((a, b) => a.localeCompare(b)),
    ["a", "b", "b", "b"],
  );
});

await tap.test("askAll() tells of each lag and silence, also of the last one, which ends the asking", async (t) => {
  for (const [failure, told] of [
    [LAG, "lag"],
    [SILENCE, "silence"],
  ] as const) {
    const seen = new Set<string>();
    const options = {
      ...optionsFor(new FakeClock()),
      onSilence: () => seen.add("silence"),
      onLag: () => seen.add("lag"),
    };
    await askAll(EACH, checks(), options);
    t.equal(seen.size, 0);
    await t.rejects(
      askAll(EACH, async () => failure, { ...options, timeoutMs: 0 }),
      { code: "NotConverged" },
    );
    t.same([...seen], [told]);
  }
  const clock = new FakeClock();
  let slow = 0;
  const check = async (): Promise<undefined> => clock.advance(6_000) as undefined;
  await askAll(EACH, check, { ...optionsFor(clock), onSilence: () => void slow++ });
  t.ok(slow > 0, "it answered, and not within five seconds");
});

await tap.test("askAll() tells of a silence also where the question is broken off", async (t) => {
  for (const ms of [4_000, 6_000]) {
    const clock = new FakeClock();
    let silences = 0;
    const check = async (): Promise<never> => {
      clock.advance(ms);
      throw new KsvmError("Interrupted", "Ctrl-C");
    };
    const asking = askAll(ONE, check, { ...optionsFor(clock), onSilence: () => void silences++ });
    await t.rejects(asking, { code: "Interrupted" });
    t.equal(silences > 0, ms === 6_000);
  }
});

for (const mode of ["each", "sampled"] as const) {
  await tap.test(
    `askAll() gives a busy API server the time that it asks for, up to the last look: ${mode}`,
    async (t) => {
      const busy = (seconds: number): CheckFailure => ({
        ...LAG,
        cause: new ApiError("GET /x", 429, { retryAfter: String(seconds) }),
      });
      const clock = new FakeClock();
      const apiServers: ApiServers =
        mode === "each" ? { mode, clients: [clientOf("a")] } : { mode, server: "a", open: () => clientOf("a") };
      await askAll(apiServers, checks(busy(3), LAG, busy(100)), optionsFor(clock));
      // A sample takes new connections, so it is not asked as soon.
      const soonMs = mode === "each" ? 100 : 250;
      t.same(clock.sleeps.slice(0, 3), [3_000, soonMs, 7_000 - soonMs]);
    },
  );
}

await tap.test("askAll() asks again soon at first, and then four times a second", async (t) => {
  const clock = new FakeClock();
  await askAll({ mode: "each", clients: [clientOf("a")] }, checks(LAG, LAG, LAG, LAG, LAG), optionsFor(clock));
  t.same(clock.sleeps, [50, 100, 200, 250, 250]);
});

await tap.test("askAll() asks once a second where an API server has not passed for ten seconds", async (t) => {
  const clock = new FakeClock();
  const lags = Array.from({ length: 60 }, () => LAG);
  await askAll({ mode: "each", clients: [clientOf("a")] }, checks(...lags), {
    ...optionsFor(clock),
    timeoutMs: 60_000,
  });
  const prompt = clock.sleeps.filter((ms) => ms <= 250);
  t.equal(
    prompt.reduce((sum, ms) => sum + ms, 0),
    10_100,
  );
  t.same(clock.sleeps.slice(prompt.length, prompt.length + 4), [500, 1_000, 1_000, 1_000]);
});

await tap.test("askAll() says that nothing lagged where all pass at once", async (t) => {
  t.same(await askAll(EACH, checks(), optionsFor(new FakeClock())), { lagged: false, silent: false });
});

await tap.test("askAll() tells an API server that failed a request from one that shows something else", async (t) => {
  const failed = { ...LAG, reason: "later", cause: new ApiError("GET /x", 503, {}) };
  t.match(await askAll(EACH, checks(failed), optionsFor(new FakeClock())), { lagged: true, failed });
  const both = checks(failed, LAG, failed);
  t.same(
    await askAll(EACH, both, optionsFor(new FakeClock())),
    { lagged: true, silent: false },
    "one that lags goes before",
  );
});

await tap.test("askAll() says that one was silent, so that settling counts from now", async (t) => {
  t.same(await askAll(EACH, checks(SILENCE), optionsFor(new FakeClock())), { lagged: false, silent: true });
  t.same(await askAll(EACH, checks(SILENCE, LAG), optionsFor(new FakeClock())), { lagged: true, silent: true });
});

await tap.test("askAll() takes an answer after more than five seconds for a silence", async (t) => {
  const clock = new FakeClock();
  const slow = async (): Promise<undefined> => {
    clock.advance(5_001);
  };
  t.same(await askAll(EACH, slow, optionsFor(clock)), { lagged: false, silent: true });
});

async function onlyALags({ transport }: ApiClient): Promise<CheckFailure | undefined> {
  return transport.server === "a" ? LAG : undefined;
}

await tap.test("askAll() names the API server that does not pass in time", async (t) => {
  const asking = askAll(EACH, onlyALags, optionsFor(new FakeClock()));
  await t.rejects(asking, { code: "NotConverged", message: "a: it lags" });
});

function sampled(): { apiServers: ApiServers; opened: () => number; closed: () => number } {
  let [opened, closed] = [0, 0];
  const open = (): ApiClient => {
    opened++;
    return clientOf("balancer", () => closed++);
  };
  return { apiServers: { mode: "sampled", server: "balancer", open }, opened: () => opened, closed: () => closed };
}

await tap.test("askAll() samples on twenty new connections, over the given time", async (t) => {
  const clock = new FakeClock();
  const { apiServers, opened, closed } = sampled();
  const startedAt = clock.monotonic();
  await askAll(apiServers, checks(), optionsFor(clock, 60_000));
  t.equal(opened(), SAMPLES);
  t.equal(closed(), SAMPLES, "each connection is closed");
  t.ok(clock.monotonic() - startedAt >= 57_000, "spread");
});

await tap.test("askAll() starts the count of samples again when one disagrees", async (t) => {
  const { apiServers, opened } = sampled();
  const before = Array.from({ length: SAMPLES - 1 }, () => undefined);
  const result = await askAll(apiServers, checks(...before, LAG), optionsFor(new FakeClock()));
  t.same(result, { lagged: true, silent: false });
  t.equal(opened(), SAMPLES + SAMPLES);
});

await tap.test("askAll() samples at half the pace where the count starts again and again", async (t) => {
  const count = [undefined, undefined, undefined, undefined, LAG];
  const clock = new FakeClock();
  const { apiServers } = sampled();
  await askAll(apiServers, checks(...Array.from({ length: 25 }, () => count).flat()), optionsFor(clock));
  const pauses = clock.sleeps.filter((ms) => ms > 0);
  t.same(pauses.slice(0, 20), Array(20).fill(250), "a hundred samples long nothing is slower");
  t.same(pauses.slice(20), Array(5).fill(500));
});

await tap.test("checkFailureOf() tells silence from a refusal, and throws what no request raised", (t) => {
  t.match(checkFailureOf(new TransportError("GET /x", "https://a", new Error("reset")), signal), { silent: true });
  t.match(checkFailureOf(new ApiError("GET /x", 503, {}), signal), { silent: false, reason: /503/ });
  t.throws(() => checkFailureOf(new TypeError("a fault of this program"), signal), TypeError);
  t.throws(() => checkFailureOf(new ApiError("GET /x", 503, {}), AbortSignal.abort(new Error("stop"))), /stop/);
  t.end();
});
