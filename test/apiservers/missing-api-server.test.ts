import tap from "tap";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import { describeMissing, MissingApiServer, waitForApiServers } from "../../src/apiservers/missing-api-server.ts";
import { FakeClock } from "../fake-clock.ts";

const { signal } = new AbortController();

await tap.test("describeMissing() names the Leases that live, and those that are overdue", async (t) => {
  const leases = [
    { name: "a", host: "one", uid: "u", createdAt: 0, renewedMsAgo: 3_000 },
    { name: "b", uid: "u", createdAt: 0, renewedMsAgo: 65_000 },
  ];
  t.equal(
    describeMissing(leases, "1 answers"),
    "2 identity Leases live (a of host one, b), by their time stamps not renewed of late: b for 65 s; 1 answers",
  );
});

await tap.test(
  "describeMissing() calls no Lease overdue that was seen to be renewed, whatever its stamp says",
  async (t) => {
    const behind = { name: "behind", uid: "u", createdAt: 0, renewedMsAgo: 65_000 };
    const of = (seenRenewedMsAgo: number): string => describeMissing([{ ...behind, seenRenewedMsAgo }], "1 answers");
    t.equal(of(10_000), "1 identity Leases live (behind); 1 answers");
    t.match(of(31_000), "by their time stamps not renewed of late: behind for 65 s");
  },
);

await tap.test("waitForApiServers() waits, says so once a minute, and goes on", async (t) => {
  const clock = new FakeClock();
  const events: MigrationEvent[] = [];
  const findApiServers = async () => {
    if (clock.monotonic() < 119_000) {
      throw new MissingApiServer("b is missing");
    }
    return { mode: "each", clients: [] } as const;
  };
  await waitForApiServers({ clock, emit: (event) => events.push(event), findApiServers, signal });
  t.match(events, [
    { type: "waiting", waitsFor: "ApiServerMissing", reason: "b is missing" },
    { type: "waiting", waitsFor: "ApiServerMissing" },
  ]);
  t.equal(events.length, 2);
});

async function findNone(): Promise<never> {
  throw new MissingApiServer("b is missing");
}

await tap.test("waitForApiServers() ends after longer than a Lease outlives its API server", async (t) => {
  const clock = new FakeClock();
  const waiting = waitForApiServers({ clock, emit: () => undefined, findApiServers: findNone, signal });
  await t.rejects(waiting, { code: "ApiServerMissing", message: /b is missing.*--ignore-apiserver/ });
  t.ok(clock.monotonic() > 3_600_000);
});
