import tap from "tap";
import { type Arrivals, UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import { EncryptionEvidence } from "../../src/apiservers/encryption-evidence.ts";
import { MissingApiServer } from "../../src/apiservers/missing-api-server.ts";
import { lookAtLast } from "../../src/cli/commands/last-look.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { StartAgain } from "../../src/retry/start-again.ts";
import { FakeClock } from "../fake-clock.ts";

/** Of two API servers, one goes down when they are looked for at this turn, and is back at the next one. */
function setting({ missingAt = 0, catchUp = async (): Promise<void> => undefined } = {}) {
  const clock = new FakeClock();
  const events: MigrationEvent[] = [];
  let turn = 0;
  const arrivals: Arrivals = { ...UNSEEN_ARRIVALS, catchUp };
  const context = {
    clock,
    arrivals,
    client: {},
    options: { convergenceTimeoutMs: 1_000 },
    retrier: new Retrier({ clock, random: () => 0.5 }),
    findApiServers: async () => {
      if (++turn === missingAt) {
        throw new MissingApiServer("2 identity Leases live (a, b); 1 address is known");
      }
      return { mode: "each", clients: [], identities: ["a", "b"] };
    },
    emit: (event: MigrationEvent) => void events.push(event),
    signal: new AbortController().signal,
  } as unknown as RunContext;
  const look = () => lookAtLast(context, new EncryptionEvidence({ isAssumed: true }), "every resource");
  return { arrivals, clock, events, look };
}

for (const missingAt of [1, 2]) {
  await tap.test(`lookAtLast() waits for an API server that goes down before look ${missingAt}`, async (t) => {
    const { clock, events, look } = setting({ missingAt });
    t.match(await look(), { configHash: "assumed" });
    t.ok(clock.monotonic() >= 2_000);
    t.match(events[0], { type: missingAt === 1 ? "waiting" : "startingAgain", reason: /identity Leases live/ });
  });
}

await tap.test("lookAtLast() looks again where the watch of the identity Leases lagged behind", async (t) => {
  let [calls, isAlwaysLate] = [0, false];
  const catchUp = async (): Promise<void> => {
    if (++calls === 2 || isAlwaysLate) {
      throw new StartAgain("WatchFailed", "the watch of the identity Leases lags behind");
    }
  };
  const { events, look } = setting({ catchUp });
  t.match(await look(), { configHash: "assumed" });
  t.match(events, [{ type: "startingAgain", reason: /lags behind/ }]);
  isAlwaysLate = true;
  await t.rejects(look(), { code: "WatchFailed" }, "and not for ever");
});

await tap.test("lookAtLast() believes no look during which an API server came", async (t) => {
  let calls = 0;
  const { arrivals, look } = setting({
    catchUp: async () => {
      Object.assign(arrivals, { count: Math.max(0, ++calls - 1) });
    },
  });
  t.equal((await look()).fingerprint, "came since");
});
