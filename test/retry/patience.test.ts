import tap from "tap";

import { DENIAL_PATIENCE_MS, FAULT_PATIENCE_MS, Patience } from "../../src/retry/patience.ts";

await tap.test(
  "Patience gives up an object that the authorizer refuses after 15 s, and the next ones at once",
  async (t) => {
    const patience = new Patience();
    t.notOk(patience.givesUpDenied(0, 0));
    t.notOk(patience.givesUpDenied(0, DENIAL_PATIENCE_MS - 1));
    t.ok(patience.givesUpDenied(0, DENIAL_PATIENCE_MS));
    t.ok(patience.givesUpDenied(20_000, 20_000), "the first one waited for all of them");
    const later = DENIAL_PATIENCE_MS + 300_000;
    t.notOk(patience.givesUpDenied(later, later), "an API server may have restarted since");
  },
);

await tap.test("Patience takes a 500 for an object's own after half a minute in which others passed", async (t) => {
  const patience = new Patience();
  t.equal(patience.judgeFault(0, FAULT_PATIENCE_MS - 1, 5_000), "wait");
  t.equal(patience.judgeFault(0, FAULT_PATIENCE_MS, 5_000), "object");
});

await tap.test("Patience waits a short time only for further objects that answer 500", async (t) => {
  const patience = new Patience();
  patience.gaveUpFault(30_000, 5_000);
  t.equal(patience.judgeFault(31_000, 32_000, 31_500), "wait");
  t.equal(patience.judgeFault(31_000, 33_000, 31_500), "object");
  t.equal(patience.judgeFault(400_000, 402_000, 400_500), "wait", "later it begins again");
});

await tap.test("Patience takes 500s from many objects without one that passes for an outage", async (t) => {
  const patience = new Patience();
  let now = FAULT_PATIENCE_MS;
  t.equal(patience.judgeFault(0, now, 0), "look", "one object alone may be the last one");
  for (let given = 0; given < 10; given++) {
    t.equal(patience.judgeFault(now - FAULT_PATIENCE_MS, now, 0), "look");
    patience.gaveUpFault(now, 0);
    now += 2_000;
  }
  t.equal(patience.judgeFault(now - FAULT_PATIENCE_MS, now, 0), "wait");
  t.equal(patience.judgeFault(now - FAULT_PATIENCE_MS, now, now - FAULT_PATIENCE_MS), "look", "one passed since");
});
