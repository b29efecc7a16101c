import tap from "tap";
import { listedObjectOf, ObjectUnreadable } from "../../src/kube/listed-object.ts";

const METADATA = {
  name: "a",
  namespace: "ns",
  uid: "uid-a",
  resourceVersion: "50",
  generation: 2,
  labels: { a: "b" },
  annotations: { long: "x".repeat(10_000) },
  managedFields: [{ manager: "m", fieldsV1: { "f:spec": {} } }],
};

const read = (metadata: object) => listedObjectOf(Buffer.from(JSON.stringify({ kind: "X", metadata, spec: {} })));

await tap.test("listedObjectOf() keeps the short fields", (t) => {
  const { digest, ...rest } = read(METADATA);
  t.strictSame(rest, {
    name: "a",
    namespace: "ns",
    uid: "uid-a",
    resourceVersion: "50",
    generation: 2,
    hasManagedFields: true,
  });
  t.match(digest, /^[\w-]{16}$/);
  t.end();
});

await tap.test("listedObjectOf() leaves out what an object does not have", (t) => {
  const { digest: _, ...rest } = read({ name: 'a"\u00fc', uid: "u", resourceVersion: "1", managedFields: [] });
  t.strictSame(rest, { name: 'a"\u00fc', uid: "u", resourceVersion: "1", hasManagedFields: false });
  t.end();
});

await tap.test("listedObjectOf() gives another digest when admission changed the object, and only then", (t) => {
  const { digest } = read(METADATA);
  t.equal(read({ ...METADATA, resourceVersion: "51", generation: 3 }).digest, digest);
  for (const change of [
    { labels: { a: "c" } },
    { labels: {}, annotations: METADATA.annotations },
    { annotations: {} },
    { finalizers: ["f"] },
    { ownerReferences: [{ name: "o" }] },
    { managedFields: [] },
  ]) {
    t.not(read({ ...METADATA, ...change }).digest, digest, JSON.stringify(change).slice(0, 60));
  }
  t.end();
});

const digestOf = (fields: object, status: boolean): string =>
  listedObjectOf(Buffer.from(JSON.stringify({ metadata: METADATA, ...fields })), { status }).digest;

await tap.test("listedObjectOf() has the digest cover the status where that was asked for", (t) => {
  t.equal(digestOf({ status: { a: 1 } }, false), digestOf({}, false));
  t.equal(digestOf({ apiVersion: "b/v2", status: { a: 1 }, spec: 1 }, true), digestOf({ status: { a: 1 } }, true));
  t.not(digestOf({ status: { a: 1 } }, true), digestOf({ status: { a: 2 } }, true));
  t.not(digestOf({ status: { a: 1 } }, true), digestOf({}, true));
  t.end();
});

await tap.test("listedObjectOf() throws ObjectUnreadable for anything else", (t) => {
  const texts = ["", "{}", "[]", "null", '{"metadata":null}', '{"metadata":{"name":"a"}}', '{"metadata":{"name":"a"'];
  const { name: _, ...nameless } = METADATA;
  for (const text of [
    ...texts,
    JSON.stringify({ metadata: nameless }),
    JSON.stringify({ metadata: { ...METADATA, uid: 1 } }),
  ]) {
    t.throws(() => listedObjectOf(Buffer.from(text)), ObjectUnreadable, text.slice(0, 60));
  }
  t.end();
});

const entry = (apiVersion: unknown) => ({
  manager: 'a"apiVersion":"x/v9"',
  apiVersion,
  fieldsV1: { "f:apiVersion": {} },
});

await tap.test("listedObjectOf() reads which versions managedFields name, where that is asked for", async (t) => {
  const metadata = { ...METADATA, managedFields: [entry("a/v1"), entry("a/v2"), entry("a/v1"), entry(3), {}] };
  const text = Buffer.from(JSON.stringify({ metadata }));
  t.same(listedObjectOf(text, { fieldVersions: true }).fieldVersions, ["a/v1", "a/v2"]);
  t.notOk("fieldVersions" in listedObjectOf(text), "no other list pays for it");
  const none = Buffer.from(JSON.stringify({ metadata: { ...METADATA, managedFields: undefined } }));
  t.same(listedObjectOf(none, { fieldVersions: true }).fieldVersions, []);
});
