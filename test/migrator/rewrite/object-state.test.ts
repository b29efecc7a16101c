import tap from "tap";

import type { ListedObject } from "../../../src/kube/listed-object.ts";
import { stateOf } from "../../../src/migrator/rewrite/object-state.ts";

const LISTED: ListedObject = {
  name: "a",
  namespace: "ns",
  uid: "uid-a",
  resourceVersion: "50",
  hasManagedFields: true,
  digest: "d",
};

await tap.test("stateOf() is gone only where a list shows no object of the name", async (t) => {
  t.strictSame(stateOf(undefined, LISTED), { kind: "gone" });
  t.strictSame(stateOf(LISTED, LISTED), { kind: "present", object: LISTED });
  const other = { ...LISTED, uid: "uid-b" };
  t.strictSame(stateOf(other, LISTED), { kind: "replaced", object: other });
});
