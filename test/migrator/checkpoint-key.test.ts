import { generateKeyPairSync } from "node:crypto";
import * as fc from "fast-check";
import tap from "tap";
import { CHECKPOINT_KEY_ANNOTATION } from "../../src/api/names.ts";
import { CheckpointKey, isSignedBy, signedCheckpoint } from "../../src/migrator/checkpoint-key.ts";
import { crdWith } from "../api/crd-with.ts";

const FIELDS = { watermark: "100", generation: 3, progress: { counts: { gone: 1 } } };
const TEXT = JSON.stringify(FIELDS);

await tap.test("a key signs fields, and what was signed before again", (t) => {
  const [key, next] = [new CheckpointKey(), new CheckpointKey()];
  const signed = key.sign(TEXT);
  t.ok(isSignedBy(signed, key.publicKey));
  t.match(JSON.parse(signed), FIELDS);
  t.notOk(isSignedBy(signed, next.publicKey), "each has a key of its own");
  const again = next.sign(signed);
  t.ok(isSignedBy(again, next.publicKey));
  t.notOk(isSignedBy(again, key.publicKey));
  t.end();
});

await tap.test("isSignedBy() believes nothing else", (t) => {
  const key = new CheckpointKey();
  const signed = key.sign(TEXT);
  const { signature, ...fields } = JSON.parse(signed) as Record<string, unknown>;
  const texts: readonly (readonly [string, unknown])[] = [
    ["no signature", fields],
    ["an empty one", { ...fields, signature: "" }],
    ["one that is no text", { ...fields, signature: [signature] }],
    ["one of other fields", { ...fields, watermark: "1", signature }],
    ["one more field", { ...fields, more: 1, signature }],
    ["one field less", { watermark: "100", signature }],
    ["null", null],
    ["a list", []],
  ];
  for (const [name, value] of texts) {
    t.equal(isSignedBy(JSON.stringify(value), key.publicKey), false, name);
  }
  for (const text of ["", "{", "null"]) t.equal(isSignedBy(text, key.publicKey), false, text);
  const { publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const rsa = publicKey.export({ format: "der", type: "spki" }).toString("base64");
  for (const other of ["", "x", "AAAA", rsa, key.publicKey.slice(0, -4)]) {
    t.equal(isSignedBy(signed, other), false, `by the key "${other.slice(0, 20)}"`);
  }
  fc.assert(
    fc.property(fc.nat(signed.length - 1), fc.string({ maxLength: 2 }), (index, put) => {
      const changed = signed.slice(0, index) + put + signed.slice(index + 1);
      return !isSignedBy(changed, key.publicKey) || isSame(changed, signed);
    }),
  );
  t.end();
});

/** Base64 has more than one text for the same bytes. */
function isSame(a: string, b: string): boolean {
  const [left, right] = [a, b].map((text) => JSON.parse(text) as { signature: string });
  const bytes = [left, right].map((one) => Buffer.from(one?.signature ?? "", "base64").toString("hex"));
  return (
    bytes[0] === bytes[1] && JSON.stringify({ ...left, signature: 0 }) === JSON.stringify({ ...right, signature: 0 })
  );
}

await tap.test("signedCheckpoint() gives what the key on the CRD verifies", (t) => {
  const key = new CheckpointKey();
  const signed = key.sign(TEXT);
  const crd = crdWith({ metadata: { annotations: { [CHECKPOINT_KEY_ANNOTATION]: key.publicKey } } });
  t.equal(signedCheckpoint(signed, crd), signed);
  t.equal(signedCheckpoint(TEXT, crd), undefined);
  t.equal(signedCheckpoint(undefined, crd), undefined);
  t.equal(signedCheckpoint(signed, crdWith()), undefined, "a CRD without a key");
  t.end();
});
