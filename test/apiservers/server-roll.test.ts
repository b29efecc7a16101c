import tap from "tap";
import { notFoundAgain, ServerRoll } from "../../src/apiservers/server-roll.ts";
import { KsvmError } from "../../src/errors.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { FakeClock } from "../fake-clock.ts";

await tap.test("notFoundAgain() names the right that is missing, and does not say that nothing answered", async (t) => {
  const found = { server: "https://api", wanted: "17.5", tries: 20 };
  t.match(notFoundAgain({ ...found, denial: undefined }), /no longer answers on 20 new connections/);
  const text = notFoundAgain({ ...found, denial: new Error('this user may not get "/metrics"') });
  t.match(text, /cannot be told from others on 20 new connections .*: this user may not get "\/metrics"$/);
  t.notMatch(text, /does not answer/);
});

await tap.test("ServerRoll opens no connection right after ones that failed", async (t) => {
  const clock = new FakeClock();
  const busy = new ApiError("GET /metrics", 429, { retryAfter: "2" });
  const link = {
    server: "https://api",
    stream: () => Promise.reject(busy),
    close: async () => undefined,
  };
  const transport = { ...link, another: () => link } as unknown as Transport;
  const roll = new ServerRoll({ transport, clock, timeoutMs: 15_000, onSilence: () => undefined });
  const { clients, silent } = await roll.call(2, new AbortController().signal);
  t.same([clients.length, silent], [0, true]);
  t.same(
    clock.sleeps.filter((ms) => ms > 0),
    Array.from({ length: 5 }, () => 2_000),
    "five times four connections",
  );
});

await tap.test("ServerRoll tells of a silence also where the call is broken off", async (t) => {
  for (const ms of [4_000, 6_000]) {
    const clock = new FakeClock();
    const abort = new AbortController();
    let silences = 0;
    const stream = async (): Promise<never> => {
      if (!abort.signal.aborted) clock.advance(ms);
      abort.abort(new KsvmError("Interrupted", "Ctrl-C"));
      throw abort.signal.reason;
    };
    const link = { server: "https://api", stream, close: async () => undefined };
    const transport = { ...link, another: () => link } as unknown as Transport;
    const roll = new ServerRoll({ transport, clock, timeoutMs: 15_000, onSilence: () => void silences++ });
    await t.rejects(roll.call(2, abort.signal), { code: "Interrupted" });
    t.equal(silences > 0, ms === 6_000);
  }
});
