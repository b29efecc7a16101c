import tap from "tap";
import { MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { askAll } from "../../src/migrator/ask-all.ts";
import { freezeCheck, freezeNotProven } from "../../src/migrator/freeze-proof.ts";
import { crdWith } from "../api/crd-fixture.ts";
import { FakeClock } from "../fake-clock.ts";

const { signal } = new AbortController();
const guard = { kind: "policy", name: "ksvm-widgets" } as const;

/** An API server that shows the annotation for the first `frozenReads` reads and accepts every dry-run. */
function clientOf(server: string, frozenReads: number): ApiClient & { readonly reads: () => number } {
  let reads = 0;
  const annotations = { [MIGRATING_ANNOTATION]: "true" };
  return {
    transport: { server },
    reads: () => reads,
    get: async () => crdWith(++reads > frozenReads ? {} : { metadata: { annotations } }),
    patch: async () => ({}),
  } as unknown as ApiClient & { readonly reads: () => number };
}

await tap.test(
  "a freeze that is lifted while it is being proven ends the proof with FreezeLifted at once",
  async (t) => {
    const clock = new FakeClock();
    const lifted = clientOf("a", 3);
    const other = clientOf("b", Number.POSITIVE_INFINITY);
    const proof = { crdName: "widgets.example.com", guard, signal };
    const proving = askAll({ mode: "each", clients: [lifted, other] }, freezeCheck(proof), {
      clock,
      signal,
      spreadMs: 0,
      timeoutMs: 30_000,
      errorOf: (server, reason) => freezeNotProven(proof, server, reason),
    });
    await t.rejects(proving, { code: "FreezeLifted", message: /somebody lifted the freeze/ });
    t.equal(lifted.reads(), 4);
    t.ok(clock.monotonic() < 5_000, "long before the time for the proof is up");
    const asked = other.reads();
    await clock.sleep(1_000);
    await clock.sleep(1_000);
    t.ok(other.reads() <= asked + 1, "nobody goes on asking");
  },
);
