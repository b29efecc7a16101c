import t from "tap";
import { DoubtfulAnswer } from "../../src/kube/errors.ts";
import { itemsOf, type ListAnswer } from "../../src/kube/listed-items.ts";

await t.test("itemsOf() concludes nothing from an answer that is no list", async (t) => {
  t.same(itemsOf({ items: [1, 2] }, "/leases"), [1, 2]);
  t.same(itemsOf({ items: null }, "/leases"), []);
  for (const body of [{}, [], "", null, undefined, 7, { items: {} }, { items: "none" }, { kind: "LeaseList" }]) {
    t.throws(() => itemsOf(body as ListAnswer<number>, "/leases"), DoubtfulAnswer);
  }
  t.throws(() => itemsOf({}, "/leases"), { message: "Cannot list /leases: the answer has no items, so it is no list" });
});
