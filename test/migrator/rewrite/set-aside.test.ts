import tap from "tap";

import type { ObjectIdentity } from "../../../src/kube/listed-object.ts";
import { SECOND_TRY_AFTER_MS, SetAside } from "../../../src/migrator/rewrite/set-aside.ts";

function object(name: string, resourceVersion = "1"): ObjectIdentity {
  return { name, namespace: "ns", uid: `uid-${name}`, resourceVersion };
}

await tap.test("SetAside hands objects over once, in the order in which they came", async (t) => {
  const aside = new SetAside();
  t.ok(aside.add(object("b"), 0));
  t.ok(aside.add(object("a"), 1));
  t.equal(aside.size, 2);
  t.same(
    aside.takeAll().map(({ name }) => name),
    ["b", "a"],
  );
  t.same(aside.takeAll(), []);
});

await tap.test("SetAside is bounded, and keeps one object once", async (t) => {
  const aside = new SetAside(2);
  t.ok(aside.add(object("a"), 0));
  t.ok(aside.add(object("b"), 0));
  t.notOk(aside.add(object("c"), 0), "there is no room");
  t.ok(aside.add(object("a", "2"), 0), "an object that is there already needs none");
  t.equal(aside.size, 2);
  aside.remove(object("b"));
  t.ok(aside.add(object("c"), 0));
  t.same(
    aside.takeAll().map(({ name, resourceVersion }) => `${name} ${resourceVersion}`),
    ["a 2", "c 1"],
  );
});

await tap.test("SetAside.dueInMs() leaves the newest object alone for a moment", async (t) => {
  const aside = new SetAside();
  t.equal(aside.dueInMs(0), 0, "nothing to wait for");
  aside.add(object("a"), 100);
  aside.add(object("b"), 400);
  t.equal(aside.dueInMs(500), SECOND_TRY_AFTER_MS - 100);
  t.equal(aside.dueInMs(400 + SECOND_TRY_AFTER_MS), 0);
  t.equal(aside.dueInMs(10_000_000), 0);
});
