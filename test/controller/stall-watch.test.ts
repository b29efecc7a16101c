import tap from "tap";
import { StallWatch } from "../../src/controller/stall-watch.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { PendingRequests } from "../../src/kube/pending-requests.ts";
import { ManualClock } from "../manual-clock.ts";

const DOWN = new ApiError("LIST", 500, {
  answer: { kind: "Status", message: 'failed calling webhook "own.example.com": no endpoints' },
});

await tap.test("StallWatch tells why a run gets no further, and stops when it does", async (t) => {
  const clock = new ManualClock();
  const watch = new StallWatch(clock);
  t.equal(watch.stall(0), undefined);
  await clock.advance(1_000);
  watch.failed(DOWN, 500);
  t.equal(watch.stall(0), undefined, "it may be a moment");
  await clock.advance(3_000);
  watch.failed(DOWN, 500);
  t.match(watch.stall(0), { reason: "WaitingForWebhook", message: /^webhook "own.example.com" fails: .*no endpoints/ });
  t.equal(watch.stall(4_000), undefined, "an object was rewritten since");
  await clock.advance(500);
  watch.failed(new Error("ECONNREFUSED"), 500);
  await clock.advance(3_000);
  t.match(watch.stall(4_000), { reason: "WaitingForOthers", message: "ECONNREFUSED" });
});

await tap.test("StallWatch forgets a failure that did not come again, and one that the run got past", async (t) => {
  const clock = new ManualClock();
  const watch = new StallWatch(clock);
  watch.failed(DOWN, 500);
  await clock.advance(4_000);
  watch.event({ type: "retrying", reason: "r", delayMs: 1 });
  t.ok(watch.stall(-1));
  watch.event({ type: "settling", remainingMs: 60_000 });
  t.equal(watch.stall(-1), undefined, "what comes after shows that it has passed");
  watch.failed(DOWN, 500);
  await clock.advance(4_000);
  t.ok(watch.stall(-1));
  await clock.advance(20_000);
  t.equal(watch.stall(-1), undefined);
});

await tap.test("StallWatch tells of a request without an answer, before it fails", async (t) => {
  const clock = new ManualClock();
  const watch = new StallWatch(clock);
  const pending = new PendingRequests(clock);
  const stall = (lastProgress = 0) => watch.stall(lastProgress, pending.oldest());
  await clock.advance(60_000);
  const endList = pending.begin("GET /apis/example.com/v1/widgets");
  const endLease = pending.begin("PATCH /apis/coordination.k8s.io/v1/leases/a");
  endLease();
  await clock.advance(4_900);
  t.equal(stall(), undefined, "it may be slow");
  await clock.advance(100);
  t.same(stall(), {
    reason: "WaitingForOthers",
    message: "the API server has not answered GET /apis/example.com/v1/widgets for 5 s",
  });
  t.equal(stall(62_000), undefined, "objects are rewritten all the same");
  await clock.advance(25_000);
  endList();
  watch.failed(DOWN, 500);
  t.equal(stall(), undefined, "whether it goes on shows in a moment");
  const endSecond = pending.begin("GET /apis/example.com/v1/widgets");
  for (let seconds = 3; seconds < 30; seconds++) {
    await clock.advance(seconds === 3 ? 3_000 : 1_000);
    t.match(stall(), { reason: "WaitingForWebhook" }, `${seconds} s: the second try hangs as the first one did`);
  }
  endSecond();
  watch.failed(DOWN, 500);
  t.match(stall(), { reason: "WaitingForWebhook" }, "and it is the same stall when it fails, too");
  watch.event({ type: "settling", remainingMs: 1 });
  t.equal(stall(), undefined);
});
