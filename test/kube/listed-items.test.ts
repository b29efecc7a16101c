import t from "tap";
import { DoubtfulAnswer } from "../../src/kube/errors.ts";
import { itemsOf } from "../../src/kube/listed-items.ts";

t.test("itemsOf() concludes nothing from an answer that is no list", async (t) => {
  t.same(itemsOf({ kind: "LeaseList", items: [1, 2] }, "/leases"), [1, 2]);
  t.same(itemsOf({ kind: "LeaseList", items: null }, "/leases"), []);
  for (const body of [{}, [], "", null, undefined, 7, { items: {} }, { items: "none" }, { kind: "LeaseList" }]) {
    t.throws(() => itemsOf(body, "/leases"), DoubtfulAnswer);
  }
  t.throws(() => itemsOf({}, "/leases"), { message: "Cannot list /leases: the answer has no items, so it is no list" });
});
