import tap from "tap";

import type { ObjectMeta } from "../../src/api/meta.ts";
import { stateOf } from "../../src/migrator/object-state.ts";

const METADATA: ObjectMeta = { name: "a", namespace: "ns", uid: "uid-a", resourceVersion: "50" };

await tap.test("stateOf() is gone only where a list shows no object of the name", async (t) => {
  t.strictSame(stateOf(undefined, METADATA), { kind: "gone" });
  t.strictSame(stateOf(METADATA, METADATA), { kind: "present", metadata: METADATA });
  const other = { ...METADATA, uid: "uid-b" };
  t.strictSame(stateOf(other, METADATA), { kind: "replaced", metadata: other });
});
