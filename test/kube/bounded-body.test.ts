import { Readable } from "node:stream";
import tap from "tap";
import { BodyTooLarge, boundedChunks, boundedText } from "../../src/kube/bounded-body.ts";

/** A body that never ends, and counts what was taken of it. */
function endlessBody(): { readonly body: Readable; readonly taken: () => number } {
  let taken = 0;
  const body = new Readable({
    highWaterMark: 1,
    read() {
      taken += 1_000;
      this.push(Buffer.alloc(1_000, "x"));
    },
  });
  return { body, taken: () => taken };
}

await tap.test("boundedText() returns a body that keeps to the limit", async (t) => {
  const bytes = Buffer.from("aü€");
  t.equal(await boundedText(Readable.from([bytes.subarray(0, 2), bytes.subarray(2)]), bytes.length), "aü€");
  t.equal(await boundedText(Readable.from([]), 0), "");
});

await tap.test("boundedText() ends a body that continues beyond the limit", async (t) => {
  const { body, taken } = endlessBody();
  await t.rejects(boundedText(body, 10_000), new BodyTooLarge(10_000));
  t.ok(body.destroyed);
  t.ok(taken() < 20_000, `${taken()} bytes were read`);
});

await tap.test("boundedChunks() ends the body when its reader stops", async (t) => {
  const { body } = endlessBody();
  for await (const chunk of boundedChunks(body, 10_000)) {
    t.equal(chunk.length, 1_000);
    break;
  }
  t.ok(body.destroyed);
});

await tap.test("boundedChunks() throws the body's own error when it breaks off", async (t) => {
  const body = new Readable({ read: () => undefined });
  body.push(Buffer.from("a"));
  const text = boundedText(body, 10);
  body.destroy(new Error("reset"));
  await t.rejects(text, /reset/);
});
