import tap from "tap";
import { FORCE_ANNOTATION, REENCRYPT_ANNOTATION } from "../../src/api/names.ts";
import { assertStillWanted, runWishOf } from "../../src/controller/run-wish.ts";

const FORCE = { [FORCE_ANNOTATION]: "true" };
const REENCRYPT = { [REENCRYPT_ANNOTATION]: "true" };
const withAnnotations = (annotations: Readonly<Record<string, string>>) => ({
  metadata: { name: "m", uid: "uid-m", resourceVersion: "1", annotations },
});

const cases = [
  { what: "nothing", before: {}, after: {}, changed: undefined },
  { what: "another annotation", before: {}, after: { other: "true" }, changed: undefined },
  { what: "force", before: {}, after: FORCE, changed: FORCE_ANNOTATION },
  { what: "a force that is none", before: {}, after: { [FORCE_ANNOTATION]: "false" }, changed: undefined },
  { what: "no force any more", before: FORCE, after: {}, changed: undefined },
  { what: "a re-encryption", before: FORCE, after: REENCRYPT, changed: REENCRYPT_ANNOTATION },
  { what: "no re-encryption any more", before: REENCRYPT, after: FORCE, changed: REENCRYPT_ANNOTATION },
  { what: "force of a re-encryption", before: REENCRYPT, after: { ...REENCRYPT, ...FORCE }, changed: undefined },
] as const;

for (const { after, before, changed, what } of cases) {
  await tap.test(`assertStillWanted() of a migration that asks for ${what}`, async (t) => {
    const done = runWishOf(withAnnotations(before));
    const check = (): void => assertStillWanted(withAnnotations(after), done);
    if (changed === undefined) {
      t.doesNotThrow(check);
    } else {
      t.throws(check, { code: "Conflict", message: new RegExp(`its annotation ${changed} was changed`) });
    }
  });
}
