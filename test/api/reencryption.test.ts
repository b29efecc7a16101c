import tap from "tap";
import { REENCRYPT_ANNOTATION } from "../../src/api/names.ts";
import {
  asksForReencryption,
  configDigestOf,
  reencryptAnnotation,
  reencryptionWishOf,
} from "../../src/api/reencryption.ts";

const HEX = "0123456789abcdef".repeat(4);
const annotated = (value: string) => ({ [REENCRYPT_ANNOTATION]: value, other: "x" });

await tap.test("reencryptionWishOf() reads what the annotation asks for", async (t) => {
  t.equal(reencryptionWishOf(undefined), undefined);
  t.equal(reencryptionWishOf({ other: "true" }), undefined);
  t.equal(reencryptionWishOf(annotated("false")), undefined);
  t.same(reencryptionWishOf(annotated("true")), {});
  t.same(reencryptionWishOf(annotated(`sha256:${HEX}`)), { expectedConfig: `sha256:${HEX}` });
  t.same(reencryptionWishOf(annotated(HEX)), { expectedConfig: `sha256:${HEX}` }, "as sha256sum prints it");
  t.same(reencryptionWishOf(annotated("optional")), { isOptional: true });
  for (const wish of [{}, { isOptional: true }, { expectedConfig: `sha256:${HEX}` }]) {
    t.same(reencryptionWishOf(reencryptAnnotation(wish)), wish);
  }
});

await tap.test(
  "reencryptionWishOf() refuses every other value, so that no migration succeeds without evidence",
  async (t) => {
    for (const value of [
      "",
      "yes",
      "True",
      "1",
      "any",
      "Optional",
      HEX.slice(1),
      `${HEX}0`,
      `md5:${HEX}`,
      `sha256:${HEX} `,
      "x".repeat(9_999),
    ]) {
      t.throws(() => reencryptionWishOf(annotated(value)), {
        code: "AnnotationInvalid",
        message:
          /the annotation ksvm\.sigs\.k8s\.io\/reencrypt is not "true", "false", "optional" or the SHA-256 digest/,
      });
      t.ok(asksForReencryption(annotated(value)), "nor does it count as one that does not re-encrypt");
    }
    t.notOk(asksForReencryption(undefined));
    t.notOk(asksForReencryption(annotated("false")));
    t.ok(asksForReencryption(annotated("true")));
  },
);

await tap.test("configDigestOf() takes upper case for no digest: API servers show none", async (t) => {
  t.equal(configDigestOf(HEX.toUpperCase()), undefined);
});
