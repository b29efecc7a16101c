import tap from "tap";
import type { Answered } from "../../src/apiservers/encryption-agreement.ts";
import { KmsV1 } from "../../src/apiservers/kms-v1.ts";

/** An answer of an API server whose counters show that of the Secrets. */
function answer(serverIdHash: string, reads: number, writes = 0): Answered {
  const kmsV1 = new Map([["secrets", { reads, writes }]]);
  return { server: "https://a", shown: { serverIdHash, configHash: "c", keys: new Map(), history: "h", kmsV1 } };
}

/** Looks twice. @returns whether the key of the Secrets is believed at the end */
function isBelieved(first: readonly Answered[], last: readonly Answered[], rewritten: number): boolean {
  const kmsV1 = new KmsV1({});
  const look = (answers: readonly Answered[], isRepeated: boolean): void =>
    kmsV1.note({ resource: "secrets", answers, isRepeated }, () => undefined);
  look(first, false);
  try {
    look(last, true);
    return kmsV1.showsKey("secrets", rewritten);
  } catch {
    return false;
  }
}

await tap.test("KmsV1 tells what such a plugin may still encrypt from what it had encrypted", async (t) => {
  t.ok(isBelieved([answer("a", 5)], [answer("a", 5)], 0), "nothing passed through it");
  t.notOk(isBelieved([answer("a", 5)], [answer("a", 9)], 0), "it was read through it, and found current");
  t.ok(isBelieved([answer("a", 5)], [answer("a", 9)], 4), "it was read through it, and written without it");
  t.notOk(isBelieved([answer("a", 5)], [answer("a", 9, 4)], 4), "it was written through it");
  t.ok(isBelieved([answer("a", 5)], [answer("a", 5), answer("a", 5)], 0), "one API server that answers twice");
  t.notOk(isBelieved([answer("a", 5), answer("b", 0)], [answer("a", 5), answer("b", 1)], 0), "any of several");
});

await tap.test("KmsV1 refuses at the first look what an API server has encrypted with one", async (t) => {
  const look = { resource: "secrets", answers: [answer("a", 0, 1)], isRepeated: false };
  const [interactive, unattended] = [new KmsV1({}), new KmsV1({ isUnattended: true })];
  const fail = (): boolean => t.fail("nothing is only warned of");
  t.throws(() => interactive.note(look, fail), { code: "EncryptionUnknown", message: /--assume-config-rolled-out/ });
  t.throws(() => unattended.note(look, fail), { code: "EncryptionUnknown", message: /see docs\/reencryption.md$/ });
  interactive.note({ ...look, resource: "configmaps" }, fail);
});

await tap.test("KmsV1 warns once for each resource where no key is claimed", async (t) => {
  const warnings: string[] = [];
  const kmsV1 = new KmsV1({ isOptional: true });
  for (const isRepeated of [false, true]) {
    kmsV1.note({ resource: "secrets", answers: [answer("a", 3)], isRepeated }, ({ message }) => warnings.push(message));
  }
  t.match(warnings, [/^a KMS v1 plugin decrypts or encrypts "secrets"/]);
  t.equal(warnings.length, 1);
});

await tap.test("KmsV1 lets a run end that claims nothing of a key, and says that none is shown", async (t) => {
  for (const [writes, isShown] of [
    [1, false],
    [0, true],
  ] as const) {
    const kmsV1 = new KmsV1({ isOptional: true, isUnattended: true });
    const answers = [answer("a", 0, writes)];
    for (const isRepeated of [false, true]) {
      kmsV1.note({ resource: "secrets", answers, isRepeated }, () => undefined);
    }
    t.equal(kmsV1.showsKey("secrets", 0), isShown);
  }
});
