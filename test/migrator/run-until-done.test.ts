import tap from "tap";
import { MissingApiServer } from "../../src/apiservers/missing-api-server.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { runUntilDone } from "../../src/migrator/run-until-done.ts";
import { FakeClock } from "../fake-clock.ts";

/** More attempts than any run may need. */
const FAR_TOO_MANY = 1_000;

function contextOf(clock: FakeClock): RunContext {
  return {
    clock,
    retrier: new Retrier({ clock, random: () => 0.5 }),
    findApiServers: async () => ({ mode: "each", clients: [], identities: ["a", "b"] }),
    emit: () => undefined,
    signal: new AbortController().signal,
  } as unknown as RunContext;
}

await tap.test(
  "runUntilDone() gives up on an API server that is found each time and answers nothing else",
  async (t) => {
    const clock = new FakeClock();
    let attempts = 0;
    const run = runUntilDone({
      context: contextOf(clock),
      name: "widgets.example.com",
      attempt: async () => {
        attempts++;
        // As where small answers arrive and large ones do not: GET /version passes, GET of the CRD never ends.
        clock.advance(30_000);
        throw attempts > FAR_TOO_MANY ? new Error("it never ends") : new MissingApiServer("b does not answer");
      },
      probe: async () => undefined,
    });
    await t.rejects(run, { code: "ApiServerMissing", message: /b does not answer/ });
    t.ok(attempts < 100, `${attempts} attempts`);
    t.ok(clock.monotonic() > 3_600_000, "but not before its identity Lease would have expired");
    t.ok(
      clock.monotonic() < 4_400_000,
      "the attempts, which hold the freeze, count as well as the pauses between them",
    );
  },
);

await tap.test(
  "runUntilDone() does not charge the hours that an attempt worked to the wait for an API server",
  async (t) => {
    const clock = new FakeClock();
    let attempts = 0;
    const result = await runUntilDone({
      context: contextOf(clock),
      name: "widgets.example.com",
      attempt: async () => {
        if (++attempts <= 3) {
          clock.advance(3 * 3_600_000);
          throw new MissingApiServer("b does not answer");
        }
        return "done";
      },
      probe: async () => undefined,
    });
    t.equal(result, "done");
  },
);
