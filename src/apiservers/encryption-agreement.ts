import { createHash } from "node:crypto";
import type { ShownEncryption } from "./encryption-metrics.ts";

/** The answer of one API server. */
export interface Answered {
  /** Its address. */
  readonly server: string;
  /** What it shows, or why that tells nothing, in words. */
  readonly shown: ShownEncryption | string;
  /** Whether it works, and has no EncryptionConfiguration or no metric that tells which. */
  readonly isAbsent?: boolean;
}

/** That all API servers encrypt alike. */
export interface Agreement {
  /** Of their EncryptionConfiguration, as they show it. */
  readonly configHash: string;
  /** The same at two looks where no API server changed anything of its encryption between them, nor restarted. */
  readonly fingerprint: string;
  /** Whether a key of theirs is kept by a KMS v2 plugin. */
  readonly hasKms: boolean;
}

/** Why it is not known that all API servers encrypt alike. */
export interface Disagreement {
  /** The API server that differs or does not tell: its address, or its identity Lease. */
  readonly server: string;
  readonly reason: string;
  /** Whether it does not tell, and so nothing shows that it differs. */
  readonly isUntold: boolean;
}

/** `sha256:` and the digest of the name of an identity Lease, as the API server itself is named in its metrics. */
export function serverIdHashOf(identity: string): string {
  return `sha256:${createHash("sha256").update(identity).digest("hex")}`;
}

/** The names of those identity Leases whose API server did not answer. */
export function unheardOf(identities: readonly string[], answers: readonly Answered[]): readonly string[] {
  const heard = new Set(answers.map(({ shown }) => (typeof shown === "string" ? "" : shown.serverIdHash)));
  return identities.filter((identity) => !heard.has(serverIdHashOf(identity)));
}

/**
 * Whether all API servers encrypt alike, by one answer of each.
 * @param identities names of the identity Leases that live: each must have answered
 */
export function agreementOf(answers: readonly Answered[], identities: readonly string[]): Agreement | Disagreement {
  const told: { readonly server: string; readonly shown: ShownEncryption }[] = [];
  for (const { server, shown } of answers) {
    if (typeof shown === "string") {
      return { server, reason: shown, isUntold: true };
    }
    told.push({ server, shown });
  }
  const [first] = told;
  const different = told.find(({ shown }) => differenceOf(first?.shown ?? shown, shown) !== undefined);
  if (first !== undefined && different !== undefined) {
    const difference = differenceOf(first.shown, different.shown) ?? "";
    return { server: different.server, reason: `${difference} of ${first.server}`, isUntold: false };
  }
  const [unheard] = unheardOf(identities, answers);
  if (first === undefined || unheard !== undefined) {
    const server = unheard === undefined ? "an API server" : `the API server of identity Lease ${unheard}`;
    return { server, reason: "no answer tells its encryption configuration", isUntold: true };
  }
  // One that was asked twice counts once.
  const histories = new Set(told.map(({ shown }) => JSON.stringify([shown.serverIdHash, shown.history])));
  const fingerprint = createHash("sha256")
    .update([...histories].toSorted().join("\n"))
    .digest("hex");
  return { configHash: first.shown.configHash, fingerprint, hasKms: told.some(({ shown }) => shown.keys.size > 0) };
}

/** What of `shown` is not as in `first`, in words before its server; `undefined` where both encrypt alike. */
function differenceOf(first: ShownEncryption, shown: ShownEncryption): string | undefined {
  if (shown.configHash !== first.configHash) {
    return `it uses encryption configuration ${shown.configHash}, which is not ${first.configHash}`;
  }
  // A plugin that only one of them shows: it is in the configuration no longer, or cannot be reached and so not written with.
  const both = [...first.keys].filter(([provider]) => shown.keys.has(provider));
  const other = both.find(([provider, key]) => shown.keys.get(provider) !== key);
  return other === undefined
    ? undefined
    : `its KMS plugin "${other[0]}" uses key ${shown.keys.get(other[0])}, which is not ${other[1]}`;
}
