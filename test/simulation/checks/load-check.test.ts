import tap from "tap";
import { type LoadBounds, LoadCheck, type LoadRequest } from "./load-check.ts";

const BOUNDS: LoadBounds = {
  objectsInFlight: 2,
  inFlight: 4,
  failuresPerMinute: 5,
  objectFailuresPerMinute: 3,
  othersPerMinute: 100,
  guardWritesPerMinute: 3,
  timers: 10,
};
const READ: LoadRequest = {
  process: "ksvm",
  method: "GET",
  path: "/a",
  isWatch: false,
  isOfObject: false,
  isOfGuard: false,
};
const WRITE: LoadRequest = { ...READ, method: "PATCH", isOfObject: true };

function checked() {
  const violations: string[] = [];
  const clock = { now: 0 };
  const check = new LoadCheck(
    BOUNDS,
    () => clock.now,
    (violation) => violations.push(violation),
  );
  return { check, clock, violations };
}

await tap.test("requests that are under way at the same time are bounded, watches are none", async (t) => {
  const { check, violations } = checked();
  for (let sent = 0; sent < 10; sent++) check.begin({ ...READ, isWatch: true }, 0);
  for (let sent = 0; sent < 4; sent++) check.begin(READ, 0);
  t.same(violations, []);
  check.begin(READ, 0);
  t.match(violations, [/has 5 of inFlight, more than 4/]);
});

await tap.test("writes of objects are bounded by --max-in-flight", async (t) => {
  const { check, violations } = checked();
  const ends = [1, 2].map((at) => check.begin({ ...WRITE, path: `/${at}` }, 0));
  ends[0]?.({ status: 200 });
  check.begin({ ...WRITE, path: "/3" }, 0);
  t.same(violations, []);
  check.begin({ ...WRITE, path: "/4" }, 0);
  t.match(violations, [/3 of objectsInFlight/]);
});

await tap.test("requests that fail are bounded in each minute in which next to none succeeds", async (t) => {
  const { check, clock, violations } = checked();
  const send = (status: number | undefined): void => {
    check.begin(READ, 0)({ status });
    clock.now += 1_000;
  };
  for (let sent = 0; sent < 60; sent++) send(sent % 2 === 0 ? 503 : 200);
  t.same(violations, [], "half of them succeed");
  clock.now += 60_000;
  for (let sent = 0; sent < 5; sent++) send(undefined);
  t.same(violations, []);
  send(403);
  t.match(violations, [/6 of failuresPerMinute/], "a refusal is a failure");
});

await tap.test("writes of objects that fail are bounded in each minute, whatever else succeeds", async (t) => {
  const { check, violations } = checked();
  const send = (request: LoadRequest, status: number): void => check.begin(request, 0)({ status });
  for (let sent = 0; sent < 50; sent++) send(WRITE, 200);
  for (const status of [404, 409, 422]) send(WRITE, status);
  t.same(violations, []);
  send({ ...WRITE, method: "GET" }, 403);
  t.match(violations, [/4 of objectFailuresPerMinute, more than 3/]);
});

await tap.test("watches that are opened count as other requests", async (t) => {
  const { check, violations } = checked();
  for (let sent = 0; sent < 101; sent++) check.begin({ ...READ, isWatch: true }, 0)({ status: 200 });
  t.match(violations, [/101 of othersPerMinute/]);
});

await tap.test(
  "writes of guards are bounded in each minute, and other requests of each process by its own bound",
  async (t) => {
    const violations: string[] = [];
    let now = 0;
    const check = new LoadCheck(
      BOUNDS,
      () => now,
      (violation) => violations.push(violation),
      (process) => (process === "idle" ? 5 : 100),
    );
    const send = (request: Partial<LoadRequest>): void => {
      check.begin({ ...READ, ...request }, 0)({ status: 200 });
      now += 10_000;
    };
    for (let sent = 0; sent < 6; sent++) send({});
    for (let sent = 0; sent < 3; sent++) send({ isOfGuard: true });
    now += 60_000;
    for (let sent = 0; sent < 3; sent++) send({ isOfGuard: true });
    t.same(violations, []);
    send({ isOfGuard: true });
    t.match(violations, [/^ksvm has 4 of guardWritesPerMinute, more than 3$/]);
    for (let sent = 0; sent < 6; sent++) send({ process: "idle" });
    t.match(violations.slice(1), [/^idle has 6 of othersPerMinute, more than 5$/]);
  },
);

await tap.test("an object is left alone for as long as Retry-After says", async (t) => {
  const { check, clock, violations } = checked();
  check.begin(WRITE, 0)({ status: 429, retryAfter: "3" });
  check.begin({ ...WRITE, path: "/b" }, 0)({ status: 200 });
  clock.now += 3_000;
  check.begin(WRITE, 0)({ status: 429, retryAfter: "999999" });
  clock.now += 120_000;
  check.begin(WRITE, 0)({ status: 503, retryAfter: "3" });
  t.same(violations, [], "at most two minutes");
  clock.now += 2_900;
  check.begin(WRITE, 0);
  t.match(violations, [/100 ms before Retry-After is over/]);
});

await tap.test("a run that begins knows nothing of what another one of the same process was told", async (t) => {
  const { check, clock, violations } = checked();
  const [widget, gadget] = ["widgets", "gadgets"].map((plural) => ({ ...WRITE, path: `/apis/g/v1/${plural}/a` }));
  for (const write of [widget, gadget]) check.begin({ ...WRITE, ...write }, 0)({ status: 429, retryAfter: "100" });
  clock.now += 60_000;
  check.begin({ ...READ, path: "/apis/g/v1/widgets", begins: "widgets" }, 0)({ status: 200 });
  check.begin({ ...WRITE, ...widget }, 0);
  t.same(violations, []);
  check.begin({ ...WRITE, ...gadget }, 0);
  t.match(violations, [/write of \/apis\/g\/v1\/gadgets\/a 40000 ms before Retry-After is over/]);
});

await tap.test("the times that a process waits for are bounded", async (t) => {
  const { check, violations } = checked();
  check.begin(READ, 10);
  t.same(violations, []);
  check.begin(READ, 11);
  t.match(violations, [/11 of timers/]);
});

await tap.test("requests that are about no object are bounded in each minute, also where they succeed", async (t) => {
  const { check, clock, violations } = checked();
  for (let sent = 0; sent < 101; sent++) check.begin({ ...READ }, 0)({ status: 200 });
  t.match(violations, [/101 of othersPerMinute/]);
  clock.now += 60_001;
  check.begin(READ, 0)({ status: 200 });
  t.equal(violations.length, 1);
});

await tap.test("a process may ask more for each migration whose status it writes in that minute", async (t) => {
  const { check, clock, violations } = checked();
  const send = (request: Partial<LoadRequest>): void => check.begin({ ...READ, ...request }, 0)({ status: 200 });
  for (let sent = 0; sent < 70; sent++) send({ migration: "/a" });
  for (let sent = 0; sent < 70; sent++) send({ migration: "/b" });
  t.same(violations, [], "100, and 20 for each of two");
  send({});
  t.match(violations, [/141 of othersPerMinute, more than 140$/]);
  clock.now += 60_001;
  for (let sent = 0; sent < 101; sent++) send({ process: "other" });
  t.match(violations.slice(1), [/^other has 101 of othersPerMinute, more than 100$/], "another process has its own");
});

await tap.test("what passes a bound by more than one at once is found, and told once", async (t) => {
  const { check, clock, violations } = checked();
  check.begin(READ, 12);
  check.begin(READ, 13);
  t.match(violations, [/12 of timers, more than 10/]);
  const send = (status: number): void => check.begin({ ...READ, process: "other" }, 0)({ status });
  send(200);
  clock.now += 30_000;
  for (let sent = 0; sent < 8; sent++) send(503);
  t.equal(violations.length, 1, "one of nine succeeds");
  clock.now += 30_001;
  send(503);
  send(503);
  t.match(violations.slice(1), [/^other has 9 of failuresPerMinute, more than 5$/]);
});
