import tap from "tap";
import { areSameFields, convertedFields, isOtherVersion } from "../../src/api/managed-fields.ts";
import type { ManagedFieldsEntry } from "../../src/api/meta.ts";

const V1 = "example.com/v1";
const OLD = "example.com/v1alpha1";

function entry(manager: string, apiVersion: string, more: Partial<ManagedFieldsEntry> = {}): ManagedFieldsEntry {
  return {
    manager,
    operation: "Update",
    apiVersion,
    time: "2026-01-01T00:00:00Z",
    fieldsType: "FieldsV1",
    fieldsV1: { "f:spec": { "f:a": {} } },
    ...more,
  };
}

await tap.test("isOtherVersion() is about versions of the same group", async (t) => {
  t.equal(isOtherVersion(OLD, V1), true);
  t.equal(isOtherVersion(V1, V1), false);
  t.equal(isOtherVersion("other.com/v1", V1), false);
  t.equal(isOtherVersion("v1beta1", "v1"), true, "of the core group");
  t.equal(isOtherVersion("", V1), false);
});

await tap.test("convertedFields() changes nothing of an entry but its version", async (t) => {
  const kept = entry("other", "other.com/v2");
  const status = entry("operator", OLD, { subresource: "status", operation: "Apply" });
  t.strictSame(convertedFields([kept, status], V1), [kept, { ...status, apiVersion: V1 }]);
  t.equal(convertedFields([entry("a", V1), kept], V1), undefined, "nothing names another version");
  t.equal(convertedFields([], V1), undefined);
});

await tap.test("convertedFields() gives a manager of two versions one entry with the fields of both", async (t) => {
  const older = entry("operator", OLD, { fieldsV1: { "f:spec": { ".": {}, "f:a": { "f:x": {} } } } });
  const newer = entry("operator", V1, {
    time: "2026-02-01T00:00:00Z",
    fieldsV1: { "f:spec": { "f:a": { "f:y": {} }, "f:b": {} }, "f:metadata": {} },
  });
  const expected = {
    ...newer,
    fieldsV1: { "f:spec": { ".": {}, "f:a": { "f:x": {}, "f:y": {} }, "f:b": {} }, "f:metadata": {} },
  };
  t.strictSame(convertedFields([older, newer], V1), [expected]);
  t.strictSame(convertedFields([newer, older], V1), [expected], "in any order");
  for (const other of [{ operation: "Apply" }, { subresource: "status" }, { manager: "another" }]) {
    t.equal(convertedFields([older, { ...newer, ...other }], V1)?.length, 2, JSON.stringify(other));
  }
});

await tap.test(
  "convertedFields() leaves a manager a field that it owns, where another entry of it has what is below",
  async (t) => {
    const [whole, below] = [{ "f:spec": {} }, { "f:spec": { "f:a": {} } }];
    for (const [a, b] of [
      [whole, below],
      [below, whole],
    ]) {
      const entries = [entry("user", OLD, { fieldsV1: a ?? {} }), entry("user", V1, { fieldsV1: b ?? {} })];
      t.strictSame(convertedFields(entries, V1), [
        entry("user", V1, { fieldsV1: { "f:spec": { ".": {}, "f:a": {} } } }),
      ]);
    }
  },
);

await tap.test("areSameFields() holds for the same entries in any order alone", async (t) => {
  const [a, b] = [entry("a", V1), entry("b", V1)];
  t.equal(areSameFields([a, b], [b, a]), true);
  t.equal(areSameFields([a, b], [a]), false);
  t.equal(areSameFields([a], [a, b]), false);
  t.equal(areSameFields([a], []), false);
  t.equal(areSameFields([a], [{ ...a, time: "2026-03-01T00:00:00Z" }]), false);
  t.equal(areSameFields([a], [{ ...a, fieldsV1: {} }]), false);
  t.equal(areSameFields([a, a], [a, b]), false);
});
