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
  /** What a user can do about one that differs, in words. @default nothing is known */
  readonly todo?: string;
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

/** How many API servers the answers name. */
export function heardCount(answers: readonly Answered[]): number {
  return new Set(answers.flatMap(({ shown }) => (typeof shown === "string" ? [] : shown.serverIdHash))).size;
}

/** What the answers are compared with. */
export interface Expected {
  /** Names of the identity Leases that live: the API server of each must have answered. */
  readonly identities: readonly string[];
  /** So many API servers were told apart behind one address: as many must have answered, also where Leases are fewer. @default 0 */
  readonly servers?: number | undefined;
  /** The digest of the configuration that a user means. @default any, if all of them use it */
  readonly configHash?: string | undefined;
  /** Where the user wrote that digest, for messages. @default `--expect-config` */
  readonly namedBy?: string | undefined;
}

interface Told {
  readonly server: string;
  readonly shown: ShownEncryption;
}

/** Whether all API servers encrypt alike, by one answer of each. */
export function agreementOf(answers: readonly Answered[], expected: Expected): Agreement | Disagreement {
  const told: Told[] = [];
  for (const { server, shown } of answers) {
    if (typeof shown === "string") {
      return { server, reason: shown, isUntold: true };
    }
    told.push({ server: nameOf({ server, shown }, expected), shown });
  }
  const [first] = told;
  const [unheard] = unheardOf(expected.identities, answers);
  const difference = differenceAmong(told, expected) ?? keylessAmong(told);
  if (difference !== undefined) {
    return difference;
  }
  const isOneUnheard = unheard !== undefined || heardCount(answers) < (expected.servers ?? 0);
  if (first === undefined || isOneUnheard) {
    const server = unheard === undefined ? "an API server" : `the API server of identity Lease ${unheard}`;
    return { server, reason: "no answer tells its encryption configuration", isUntold: true };
  }
  const hasKms = told.some(({ shown }) => shown.keys.size > 0);
  return { configHash: first.shown.configHash, fingerprint: fingerprintOfAll(told), hasKms };
}

/** Several may answer at one address: then the identity Lease tells them apart. */
export function nameOf(
  { server, shown }: Pick<Answered, "server" | "shown">,
  { identities }: Pick<Expected, "identities">,
): string {
  const idHash = typeof shown === "string" ? "" : shown.serverIdHash;
  const identity = identities.find((name) => serverIdHashOf(name) === idHash);
  return identity === undefined ? server : `${server} (${identity})`;
}

/** One that has what a user means is never the one that differs. */
function differenceAmong(
  told: readonly Told[],
  { configHash, namedBy = "--expect-config" }: Expected,
): Disagreement | undefined {
  const odd = configHash === undefined ? undefined : told.find(({ shown }) => shown.configHash !== configHash);
  if (odd !== undefined) {
    const reason = `it uses encryption configuration ${odd.shown.configHash}, which is not ${configHash} of ${namedBy}`;
    return { server: odd.server, reason, isUntold: false, todo: "have it read the new configuration" };
  }
  const [first, ...others] = told;
  if (first === undefined) {
    return undefined;
  }
  for (const { server, shown } of others) {
    const difference = differenceOf(first.shown, shown);
    if (difference !== undefined) {
      return { server, reason: `${difference.reason} of ${first.server}`, isUntold: false, todo: difference.todo };
    }
  }
  return undefined;
}

/**
 * An API server asks each KMS v2 plugin of its configuration for its key when it starts, and once a minute, whether or not it encrypts
 * with it: one that shows no key of a plugin could not ask it, and which key it will use is not known. What another one shows may also be
 * left from a plugin that is in the configuration no longer, and nothing on /metrics tells that apart; a restart does.
 */
function keylessAmong(told: readonly Told[]): Disagreement | undefined {
  for (const { server: other, shown } of told) {
    for (const provider of shown.keys.keys()) {
      const keyless = told.find((one) => !one.shown.keys.has(provider));
      if (keyless !== undefined) {
        const begin = `it does not show which key its KMS plugin "${provider}" uses, and ${other} does`;
        const todo = `see whether that plugin answers there; where no configuration names it any more, restart ${other}`;
        return { server: keyless.server, reason: `${begin}: ${todo}`, isUntold: true };
      }
    }
  }
  return undefined;
}

/** One that was asked twice counts once. */
function fingerprintOfAll(told: readonly Told[]): string {
  const histories = new Set(told.map(({ shown }) => JSON.stringify([shown.serverIdHash, shown.history])));
  const text = [...histories].toSorted((a, b) => a.localeCompare(b)).join("\n");
  return createHash("sha256").update(text).digest("hex");
}

/** What of `shown` is not as in `first`, in words before its server; `undefined` where both encrypt alike. Which of the two is as it should be, nothing shows. */
function differenceOf(
  first: ShownEncryption,
  shown: ShownEncryption,
): Required<Pick<Disagreement, "reason" | "todo">> | undefined {
  if (shown.configHash !== first.configHash) {
    const reason = `it uses encryption configuration ${shown.configHash}, which is not ${first.configHash}`;
    return { reason, todo: "have all of them read the same configuration" };
  }
  const both = [...first.keys].filter(([provider]) => shown.keys.has(provider));
  const other = both.find(([provider, key]) => shown.keys.get(provider) !== key);
  return other === undefined
    ? undefined
    : {
        reason: `its KMS plugin "${other[0]}" uses key ${shown.keys.get(other[0])}, which is not ${other[1]}`,
        todo: "have all plugins name the same key",
      };
}
