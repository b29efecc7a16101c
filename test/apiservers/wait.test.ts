// How long a settle wait lasts, on a clock that moves where somebody waits.
import t from "tap";
import { type Answers, ApiServerMissing } from "../../src/apiservers/find.ts";
import { type ApiServerEvent, settle } from "../../src/apiservers/settle.ts";
import { Client } from "../../src/kube/client.ts";
import { FakeClock } from "../fake-clock.ts";

const { signal } = new AbortController();

interface Waited {
  readonly clock: FakeClock;
  readonly events: readonly ApiServerEvent[];
  readonly looks: number;
  readonly error: unknown;
}

/** @param look what API servers answer at each look: which processes there are */
async function waited(look: (n: number, clock: FakeClock) => string): Promise<Waited> {
  const clock = new FakeClock();
  const client = new Client({ address: "https://a", send: () => Promise.reject(), clock, random: () => 0.5 });
  const events: ApiServerEvent[] = [];
  let looks = 0;
  const ask = async (): Promise<Answers<unknown>> => {
    const processes = look(looks++, clock);
    return { answers: [{ address: "https://a", answer: undefined }], processes, isSampled: false };
  };
  const options = { settleMs: 90_000, signal, onEvent: (event: ApiServerEvent) => events.push(event) };
  const error = await settle(client, ask, async () => false, options).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return { clock, events, looks, error };
}

await t.test("every ten seconds all API servers are asked, for as long as it takes", async (t) => {
  const { clock, error, events, looks } = await waited(() => "a b");
  t.equal(error, undefined);
  t.equal(looks, 10);
  t.equal(clock.monotonic(), 90_000);
  t.match(events.at(-1), { type: "settled", isLongPast: false });
});

await t.test("answers that take long do not start the wait over, and do not count", async (t) => {
  const { clock, error, looks } = await waited((_, time) => {
    time.advance(25_000);
    return "a b";
  });
  t.equal(error, undefined);
  t.equal(looks, 10);
  t.equal(clock.monotonic(), 90_000 + 10 * 25_000);
});

await t.test("an answer that does not come, and another process, start the wait over", async (t) => {
  const missing = await waited((n) => {
    if (n === 5) throw new ApiServerMissing("1 of 2 answer");
    return "a b";
  });
  t.equal(missing.error, undefined);
  t.equal(missing.looks, 1 + 4 + 2 + 9);
  t.ok(missing.events.some((event) => event.type === "waiting" && /1 of 2 answer/.test(event.reason)));
  const joined = await waited((n) => (n < 5 ? "a b" : "a c"));
  t.equal(joined.error, undefined);
  t.equal(joined.looks, 1 + 5 + 9);
  t.ok(joined.events.some((event) => event.type === "settling" && /joined, left or started/.test(event.reason)));
});

await t.test("a wait that never ends is given up after 70 minutes", async (t) => {
  const { clock, error } = await waited((n) => `a ${n}`);
  t.match(error, { code: "ApiServerMissing", message: /joined, left or started/ });
  t.ok(clock.monotonic() > 70 * 60_000 && clock.monotonic() < 80 * 60_000);
});
