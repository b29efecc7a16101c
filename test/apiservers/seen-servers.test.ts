import tap from "tap";
import type { LiveLease } from "../../src/apiservers/control-plane-objects.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { FakeClock } from "../fake-clock.ts";
import { ManualClock } from "../manual-clock.ts";

const SETTLE_MS = 65_000;

function setting() {
  const clock = new FakeClock();
  const seen = new SeenServers(clock);
  return { clock, seen, isSilent: () => seen.wereSilentWithin(SETTLE_MS) };
}

await tap.test("SeenServers has a silence last until all API servers were found", async (t) => {
  const { clock, isSilent, seen } = setting();
  seen.found();
  t.notOk(isSilent(), "none was silent");
  seen.silent();
  clock.advance(3_600_000);
  seen.found();
  t.ok(isSilent(), "nobody saw when it went on: it may have been right before");
  clock.advance(SETTLE_MS + 1);
  seen.found();
  t.notOk(isSilent(), "what was under way on it has ended");
});

await tap.test("SeenServers knows whether late writes may come, until that is settled", async (t) => {
  const { clock, seen } = setting();
  const mayCome = (resource = "widgets.example.com"): boolean => seen.mayLateWriteCome(resource, SETTLE_MS);
  t.notOk(mayCome());
  seen.silent();
  clock.advance(3_600_000);
  t.ok(mayCome(), "the silence goes on");
  seen.found();
  t.ok(mayCome());
  clock.advance(SETTLE_MS + 1);
  t.notOk(mayCome());
  seen.noting("widgets.example.com").onLag();
  clock.advance(SETTLE_MS + 1);
  seen.followed("widgets.example.com");
  clock.advance(SETTLE_MS + 1);
  t.ok(mayCome(), "no run has waited for late writes");
  t.notOk(mayCome("gadgets.example.com"));
  seen.settledFor("widgets.example.com", seen.lagOf("widgets.example.com"));
  t.notOk(mayCome());
  const lease: LiveLease = { name: "a", uid: "1", createdAt: 0, renewTime: "then", renewedMsAgo: 31_000 };
  seen.looked([lease]);
  t.ok(mayCome(), "it stands still");
});

function heldLease(name: string, holder: string, renewTime = "then") {
  return { name, uid: `uid-${name}`, createdAt: 0, renewTime, renewedMsAgo: 0, holder };
}

await tap.test("SeenServers tells of an API server that joins, also in the place of another one", async (t) => {
  const seen = new SeenServers(new ManualClock());
  let joined = 0;
  seen.onJoin = () => joined++;
  const told = (...leases: readonly ReturnType<typeof heldLease>[]): number => {
    seen.looked(leases);
    return joined;
  };
  t.equal(told(heldLease("a", "a_1")), 0, "the first look knows of no other");
  t.equal(told(heldLease("a", "a_1", "now")), 0, "a renewal");
  t.equal(told(heldLease("a", "a_1"), heldLease("b", "b_1")), 1);
  t.equal(told(heldLease("a", "a_1")), 1, "one that leaves");
  t.equal(told(heldLease("a", "a_2")), 2, "a restart");
});

await tap.test("SeenServers sees a suspension also where a run ends before it has looked again", async (t) => {
  const clock = new ManualClock();
  const seen = new SeenServers(clock);
  clock.sleepMachine(3_600_000);
  t.ok(seen.mayLateWriteCome("widgets.example.com", SETTLE_MS));
});

await tap.test(
  "SeenServers remembers for each resource that an API server was behind, until it has settled",
  async (t) => {
    const { clock, isSilent, seen } = setting();
    seen.noting("widgets.example.com").onLag();
    clock.advance(3_600_000);
    t.ok(seen.lagOf("widgets.example.com"), "nobody saw when it followed");
    t.notOk(seen.lagOf("gadgets.example.com"));
    const lag = seen.lagOf("widgets.example.com");
    seen.settledFor("gadgets.example.com", undefined);
    t.ok(seen.lagOf("widgets.example.com"));
    seen.noting("widgets.example.com").onLag();
    seen.settledFor("widgets.example.com", lag);
    t.ok(seen.lagOf("widgets.example.com"), "it was behind again while a run waited");
    seen.settledFor("widgets.example.com", seen.lagOf("widgets.example.com"));
    t.notOk(seen.lagOf("widgets.example.com"));
    seen.found();
    t.ok(isSilent(), "its watch of CRDs was behind, which is that of the others, and nobody saw when it followed");
    seen.followed("gadgets.example.com");
    clock.advance(SETTLE_MS + 1);
    t.ok(isSilent());
    seen.followed("widgets.example.com");
    t.ok(isSilent(), "it may have followed a moment ago");
    clock.advance(SETTLE_MS + 1);
    seen.followed("gadgets.example.com", clock.monotonic());
    t.notOk(isSilent());
    seen.noting("widgets.example.com").onLag();
    seen.followed("gadgets.example.com", clock.monotonic() - 1);
    clock.advance(SETTLE_MS + 1);
    t.ok(isSilent(), "it may have been behind a later change");
    seen.followed("gadgets.example.com", clock.monotonic());
    t.ok(isSilent());
    clock.advance(SETTLE_MS + 1);
    t.notOk(isSilent());
    seen.noting("widgets.example.com").onSilence();
    t.ok(isSilent(), "a silence is one for all of them");
  },
);

await tap.test("SeenServers takes a read that is not answered within five seconds for a silence, and no write", (t) => {
  const { clock, isSilent, seen } = setting();
  seen.observer("GET", 200, 5);
  seen.observer("PATCH", 0, 70);
  t.notOk(isSilent(), "a webhook of others may keep a write waiting");
  seen.observer("GET", 0, 5.1);
  t.ok(isSilent());
  clock.advance(SETTLE_MS + 1);
  seen.found();
  clock.advance(SETTLE_MS + 1);
  t.notOk(isSilent());
  const pending = seen.pending();
  const [read, write] = [pending.begin("GET /version"), pending.begin("PATCH /api/v1/pods/a")];
  clock.advance(6_000);
  write();
  t.notOk(isSilent());
  t.equal(pending.oldest()?.what, "GET /version");
  read();
  t.ok(isSilent());
  t.equal(pending.oldest(), undefined);
  t.end();
});

const lease = (renewTime: string, renewedMsAgo: number) => ({
  name: "a",
  uid: "uid of a",
  createdAt: 0,
  renewTime,
  renewedMsAgo,
});

await tap.test("SeenServers takes an overdue identity Lease that is renewed for a silence until then", (t) => {
  const { clock, isSilent, seen } = setting();
  for (let ms = 0; ms < 3_600_000; ms += 600_000) seen.looked([lease("09:00", 60_000 + ms)]);
  seen.looked([]);
  t.notOk(isSilent(), "an API server that never goes on writes nothing");
  seen.looked([lease("10:00", 20_000)]);
  seen.looked([lease("10:01", 5_000)]);
  t.notOk(isSilent(), "it was renewed in time");
  seen.looked([lease("10:01", 1_000_000)]);
  clock.advance(SETTLE_MS + 1);
  seen.looked([lease("10:20", 1_000)]);
  t.ok(isSilent());
  t.end();
});

await tap.test("SeenServers takes an identity Lease for overdue where looks show the same renewal for 30 s", (t) => {
  const { clock, isSilent, seen } = setting();
  const ahead = -1_200_000;
  seen.looked([lease("10:20", ahead)]);
  clock.advance(30_000);
  seen.looked([lease("10:20", ahead)]);
  t.notOk(seen.areOverdue([lease("10:20", ahead)]), "it may have been renewed a moment before the first look");
  clock.advance(15_000);
  seen.looked([lease("10:20", ahead)]);
  t.ok(seen.areOverdue([lease("10:20", ahead)]), "whatever its stamp says");
  t.notOk(isSilent(), "it may never go on");
  seen.looked([lease("10:21", ahead)]);
  t.ok(isSilent());
  t.notOk(seen.areOverdue([lease("10:21", ahead)]));
  t.end();
});
