import tap from "tap";
import { NameIssuer } from "../../src/controller/name-issuer.ts";
import { ManualClock } from "../manual-clock.ts";

/** @param needed how many times a certificate has to be issued until one has the name */
function lacking(needed: number) {
  const [clock, stop, seen] = [new ManualClock(), new AbortController(), { issues: 0, failures: 0, successes: 0 }];
  const issuer = new NameIssuer({
    clock,
    isLacking: () => seen.issues < needed,
    issue: async () => {
      seen.issues++;
      if (seen.issues < needed) throw new Error("another replica wants other names");
    },
    failures: { failed: () => seen.failures++, worked: () => seen.successes++ },
  });
  return { clock, issuer, seen, signal: stop.signal, stop: () => stop.abort(new Error("seen enough")) };
}

await tap.test("NameIssuer issues nothing while API servers can call what is served", async (t) => {
  const { clock, issuer, seen, signal } = lacking(0);
  issuer.offered(signal);
  await clock.advance(600_000);
  t.equal(seen.issues, 0);
});

await tap.test("NameIssuer gives the leader ten seconds, and tries once a minute", async (t) => {
  const { clock, issuer, seen, signal } = lacking(3);
  issuer.offered(signal);
  issuer.offered(signal);
  await clock.advance(9_999);
  t.equal(seen.issues, 0);
  await clock.advance(1);
  t.equal(seen.issues, 1);
  issuer.offered(signal);
  await clock.advance(59_999);
  t.equal(seen.issues, 1, "whatever is taken into use in between");
  await clock.advance(600_000);
  t.same(seen, { issues: 3, failures: 2, successes: 1 });
});

await tap.test("NameIssuer leaves it to the leader where that issues a certificate with the name", async (t) => {
  const { clock, issuer, seen, signal } = lacking(1);
  issuer.offered(signal);
  await clock.advance(5_000);
  seen.issues = 1;
  await clock.advance(600_000);
  t.same(seen, { issues: 1, failures: 0, successes: 0 });
});

await tap.test("NameIssuer issues nothing once the replica ends", async (t) => {
  const { clock, issuer, seen, signal, stop } = lacking(1);
  issuer.offered(signal);
  await clock.advance(5_000);
  stop();
  await clock.advance(600_000);
  t.equal(seen.issues, 0);
});

await tap.test("NameIssuer takes a failure for none where the certificate has the name all the same", async (t) => {
  const [clock, told] = [new ManualClock(), [] as string[]];
  let isLacking = true;
  const issuer = new NameIssuer({
    clock,
    isLacking: () => isLacking,
    issue: async () => {
      isLacking = false;
      throw new Error("the replica that leads goes on with the rotation");
    },
    failures: { failed: () => told.push("failed"), worked: () => told.push("worked") },
  });
  issuer.offered(new AbortController().signal);
  await clock.advance(600_000);
  t.same(told, ["worked"]);
});
