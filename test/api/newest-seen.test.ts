import tap from "tap";
import { NewestSeen } from "../../src/api/newest-seen.ts";

await tap.test("NewestSeen.take() takes what is newer or the same, and nothing older", (t) => {
  const newest = new NewestSeen();
  for (const version of ["9", "9", "10"]) t.ok(newest.take(version), version);
  t.notOk(newest.take("9"), "as a number");
  t.equal(newest.resourceVersion, "10");
  t.end();
});

await tap.test("NewestSeen.take() takes an older one by a read that was sent after the newer one was taken", (t) => {
  const newest = new NewestSeen();
  newest.take("10");
  const sentAfter = newest.resourceVersion;
  newest.take("12");
  t.notOk(newest.take("11", sentAfter), "the watch overtook the read");
  t.ok(newest.take("11", newest.resourceVersion), "etcd was restored");
  t.ok(newest.take("12"), "from then on the backup's resourceVersions count");
  t.end();
});

await tap.test("NewestSeen.take() takes what cannot be compared", (t) => {
  const newest = new NewestSeen();
  t.ok(newest.take("b"));
  t.ok(newest.take("a"));
  t.ok(newest.take(undefined));
  t.equal(newest.resourceVersion, "a");
  t.end();
});
