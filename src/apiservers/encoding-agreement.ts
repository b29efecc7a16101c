import { createHash } from "node:crypto";
import { type Agreement, type Answered, type Disagreement, nameOf } from "./encryption-agreement.ts";
import { encodingText, type StorageEncoding } from "./storage-encoding.ts";

/** What the answers are compared with. */
export interface ExpectedEncoding {
  /** Names of the identity Leases that live. */
  readonly identities: readonly string[];
  /** The encoding that a user means. @default any, if all of them use it */
  readonly encoding?: StorageEncoding | undefined;
}

/** Why it is not shown that all API servers store custom resources in one encoding; `undefined` where it is. */
export function encodingDisagreementOf(
  answers: readonly Answered[],
  expected: ExpectedEncoding,
): Disagreement | undefined {
  const [first] = answers;
  const odd = answers.find(({ encoding }) => isCbor(encoding) !== isCbor(first?.encoding));
  if (first !== undefined && odd !== undefined) {
    const reason = `it stores custom resources ${wordsOf(odd)}, and ${nameOf(first, expected)} ${wordsOf(first)}`;
    return { server: nameOf(odd, expected), reason, isUntold: false, isEncoding: true };
  }
  return expected.encoding === undefined ? undefined : unexpectedAmong(answers, expected.encoding, expected);
}

function unexpectedAmong(
  answers: readonly Answered[],
  wanted: StorageEncoding,
  expected: ExpectedEncoding,
): Disagreement | undefined {
  const wrong = answers.find(({ encoding }) => encoding !== wanted);
  if (wrong === undefined) {
    return undefined;
  }
  const reason = `it stores custom resources ${wordsOf(wrong)}, which is not ${encodingText(wanted)} of --expect-encoding`;
  return { server: nameOf(wrong, expected), reason, isUntold: wrong.encoding === undefined, isEncoding: true };
}

/** The encoding that all answers show; `undefined` where one of them does not tell. */
export function commonEncodingOf([first, ...others]: readonly Answered[]): StorageEncoding | undefined {
  return others.every(({ encoding }) => encoding === first?.encoding) ? first?.encoding : undefined;
}

/**
 * Whether as many API servers answered as live, where none of them has an EncryptionConfiguration: of those behind one address,
 * nothing but when its process started tells one from another then.
 * @param configHash what stands for a configuration that is not there
 */
export function unencryptedAgreementOf(
  answers: readonly Answered[],
  { identities, servers = 0 }: Pick<ExpectedEncoding, "identities"> & { readonly servers?: number },
  configHash: string,
): Agreement | Disagreement {
  const instances = unencryptedInstancesOf(answers);
  if (instances.size < Math.max(identities.length, servers, 1)) {
    const reason =
      servers > identities.length
        ? `${instances.size} of them answered, and ${servers} were told apart`
        : `${instances.size} of them answered, and ${identities.length} identity Leases live`;
    return { server: "an API server", reason, isUntold: true, isEncoding: true };
  }
  const text = JSON.stringify([configHash, ...[...instances].toSorted((a, b) => a.localeCompare(b))]);
  return { configHash, fingerprint: createHash("sha256").update(text).digest("hex"), hasKms: false };
}

/** What tells the processes that answered from one another; empty where one of them has an EncryptionConfiguration, or does not tell. */
export function unencryptedInstancesOf(answers: readonly Answered[]): ReadonlySet<string> {
  const isWhole = answers.every(({ instance, isAbsent }) => isAbsent === true && instance !== undefined);
  return new Set(isWhole ? answers.map(({ instance, server }) => `${server} ${instance}`) : []);
}

function isCbor(encoding: StorageEncoding | undefined): boolean {
  return encoding === "cbor";
}

function wordsOf({ encoding }: Answered): string {
  return encoding === undefined ? "in an encoding that its /metrics do not show" : `as ${encodingText(encoding)}`;
}
