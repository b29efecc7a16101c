import { Readable } from "node:stream";
import tap from "tap";
import { ObjectUnreadable, listedObjectOf } from "../../../src/old/kube/listed-object.ts";
import { readListedPage } from "../../../src/old/kube/listed-page.ts";

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

const item = (name: string) => ({
  metadata: { name, uid: `uid-${name}`, resourceVersion: "7", annotations: { long: "x".repeat(1_000) } },
});

/** A body in chunks, as it comes from a socket. */
function bodyOf(value: unknown, size = 100): Readable {
  return inPieces(JSON.stringify(value), size);
}

function inPieces(text: string, size: number): Readable {
  const bytes = Buffer.from(text);
  return Readable.from(
    Array.from({ length: Math.ceil(bytes.length / size) }, (_, n) => bytes.subarray(n * size, (n + 1) * size)),
  );
}

await tap.test("readListedPage() keeps the short fields of each object, and the page's own", async (t) => {
  const metadata = { resourceVersion: "9", continue: "token", remainingItemCount: 5 };
  const list = { kind: "PartialObjectMetadataList", metadata, items: [item("a"), item("b")] };
  const page = await readListedPage(bodyOf(list));
  t.match(page, { resourceVersion: "9", continueToken: "token", remainingItemCount: 5 });
  t.equal(page.bytes, Buffer.byteLength(JSON.stringify(list)));
  t.match(page.items, [
    { name: "a", uid: "uid-a" },
    { name: "b", uid: "uid-b" },
  ]);
  t.ok(JSON.stringify(page).length < 500, "and no annotation");
});

await tap.test("readListedPage() takes the last page, and one without items", async (t) => {
  for (const items of [[], null]) {
    const page = await readListedPage(
      bodyOf({ kind: "List", metadata: { resourceVersion: "9", continue: "" }, items }),
    );
    t.same(page.items, []);
    t.notOk("continueToken" in page);
  }
});

await tap.test("readListedPage() takes a list of whole objects by whatever listKind their CRD has", async (t) => {
  const list = { kind: "WidgetCollection", metadata: { resourceVersion: "9" }, items: [item("a")] };
  t.match((await readListedPage(bodyOf(list), { status: true })).items, [{ name: "a" }]);
  await t.rejects(readListedPage(bodyOf(list)), "a list of metadata has one kind");
  for (const other of [
    { ...list, kind: "" },
    { ...list, kind: undefined },
    { kind: "Status", metadata: {} },
  ]) {
    await t.rejects(readListedPage(bodyOf(other), { status: true }), JSON.stringify(other));
  }
});

await tap.test("readListedPage() throws when the page is not whole", async (t) => {
  const whole = JSON.stringify({ kind: "List", metadata: { resourceVersion: "9" }, items: [item("a"), item("b")] });
  for (const text of [
    "",
    "null",
    "not JSON",
    whole.slice(0, -1),
    whole.slice(0, 300),
    "<html></html>",
    '{"kind":"Status","metadata":{}}',
    "{}",
  ]) {
    await t.rejects(readListedPage(Readable.from([Buffer.from(text)])), text.slice(0, 40));
  }
});

const LIST = '"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9"}';
const OBJECT = '{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}';
const NO_EMPTY_LISTS: readonly (readonly [what: string, text: string])[] = [
  ["has no items", `{${LIST}}`],
  ["has one object for its items", `{${LIST},"items":${OBJECT}}`],
  ["has text for its items", `{${LIST},"items":"none"}`],
  ["spells the key of its items with an escaped character", `{${LIST},"\\u0069tems":[${OBJECT}]}`],
  ["has items that are no objects", `{${LIST},"items":["a",5,null]}`],
  ["has lists for items", `{${LIST},"items":[[]]}`],
  ["has items without a comma", `{${LIST},"items":[${OBJECT}${OBJECT}]}`],
  ["has commas without items", `{${LIST},"items":[,]}`],
  ["has a comma behind its items", `{${LIST},"items":[${OBJECT},]}`],
];
for (const [what, text] of NO_EMPTY_LISTS) {
  await tap.test(`readListedPage() takes no answer for an empty list that ${what}`, async (t) => {
    for (const size of [1, 7, 10_000]) {
      await t.rejects(readListedPage(inPieces(text, size)), `${size} bytes at a time`);
    }
  });
}
