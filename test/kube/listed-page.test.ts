import { Readable } from "node:stream";
import tap from "tap";
import { readListedPage } from "../../src/kube/listed-page.ts";

const item = (name: string) => ({
  metadata: { name, uid: `uid-${name}`, resourceVersion: "7", annotations: { long: "x".repeat(1_000) } },
});

/** A body in chunks, as it comes from a socket. */
function bodyOf(value: unknown, size = 100): Readable {
  const bytes = Buffer.from(JSON.stringify(value));
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
