import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import { reportOverdue } from "../../src/apiservers/overdue-leases.ts";
import { FakeClock } from "../fake-clock.ts";

const START = Date.parse("2026-01-01T00:00:00Z");

/** Watches for five minutes; `renewed` says when an API server renewed its Lease last, by its clock, in milliseconds. */
async function watch(identities: readonly string[], renewed: (name: string, ms: number) => number) {
  const clock = new FakeClock(START);
  const over = new AbortController();
  const events: MigrationEvent[] = [];
  let looks = 0;
  const request = async (): Promise<unknown> => {
    looks++;
    if (clock.monotonic() >= 300_000) {
      over.abort();
    }
    const items = ["a", "b"].map((name) => ({
      metadata: { name },
      spec: {
        renewTime: new Date(START + renewed(name, clock.monotonic())).toISOString(),
        leaseDurationSeconds: 3_600,
      },
    }));
    return { status: 200, body: { items }, serverTime: clock.now() };
  };
  const client = { transport: { request } } as unknown as ApiClient;
  await reportOverdue({ client, clock, emit: (event) => events.push(event) }, identities, over.signal);
  return { events, looks };
}

await tap.test("reportOverdue() names an API server that has stopped to renew its Lease, once a minute", async (t) => {
  const { events } = await watch(["a", "b"], (name, ms) => (name === "b" ? Math.min(ms, 60_000) : ms));
  t.equal(events.length, 4);
  t.match(events[0], { type: "lagging", server: "API server b", reason: /not renewed its identity Lease for 45 s/ });
});

await tap.test("reportOverdue() takes no difference between clocks for a Lease that is overdue", async (t) => {
  const { events } = await watch(["a", "b"], (name, ms) => (name === "b" ? ms - 120_000 : ms));
  t.same(events, []);
});

await tap.test("reportOverdue() looks at nothing where the user named the API servers, or there is one", async (t) => {
  t.equal((await watch([], () => 0)).looks, 0);
  t.equal((await watch(["a"], () => 0)).looks, 0);
});
