import { ASSUMED, type EncryptionFound, NONE_SHOWN } from "../../apiservers/encryption-evidence.ts";
import { encodingText } from "../../apiservers/storage-encoding.ts";
import { objectNameOf } from "../../kube/named-object.ts";
import type { NotCurrent } from "../../migrator/events.ts";
import type { ShownOn, Verification, VerificationCounts } from "../../verify/verification.ts";

/** One object that was not current, in words. */
export function describeNotCurrent({ doubt, server, ...object }: NotCurrent): string {
  const name = objectNameOf(object);
  switch (doubt) {
    case "changed by admission":
      return `${name} may not have been current: an admission webhook or policy changed it when it was written through ${server}`;
    case "managedFields emptied":
      return `${name} may not have been current: its managedFields name a version that the CRD no longer has, and the API server emptied them with the write through ${server}`;
    case "no answer":
      return `${name} may not have been current: a write through ${server} got no answer, and the object has changed since`;
    default:
      return `${name} was not current: a write through ${server} has repaired it`;
  }
}

/** The verification of one resource in words, on one line. */
export function describeVerification(verification: Verification): string {
  const { apiServers, counts, watermark } = verification;
  return `${describeShown(counts, apiServers)}, watermark ${watermark}; ${describeEvidence(verification)}`;
}

/** `1,204,331 objects current on 3 of 3 API servers, 0 changed`. */
function describeShown({ changed, current, gone, notShown }: VerificationCounts, shownOn: ShownOn): string {
  const more = [
    `${grouped(changed)} changed`,
    ...(notShown === 0 ? [] : [`${grouped(notShown)} not shown`]),
    ...(gone === 0 ? [] : [`${grouped(gone)} deleted since`]),
  ];
  return `${grouped(current)} objects current on ${describeServers(shownOn)}, ${more.join(", ")}`;
}

function describeServers({ isShared, of, servers }: ShownOn): string {
  if (isShared === true) {
    const known = of === undefined ? "an unknown number of" : String(of);
    return `1 of ${known} API servers (any one of those behind ${servers.join(", ")})`;
  }
  return `${servers.length} of ${of ?? servers.length} API servers (${servers.join(", ")})`;
}

function describeEvidence({ encoding, encryption, storageVersion, storageVersionHash }: Verification): string {
  const stored =
    storageVersion === undefined
      ? `storageVersionHash "${storageVersionHash ?? ""}"`
      : `storage version "${storageVersion}"${encoding === "cbor" ? ` as ${encodingText(encoding)}` : ""}`;
  return `${stored}, ${describeEncryption(encryption)}`;
}

function describeEncryption(encryption: string | undefined): string {
  switch (encryption) {
    case undefined:
      return "the encryption configuration was not looked at";
    case ASSUMED:
      return "the encryption configuration is assumed to be the same on all of them, so this is no evidence of a key";
    case NONE_SHOWN:
      return "no API server shows an encryption configuration, so this is no evidence of a key";
    default:
      return `encryption configuration ${encryption}`;
  }
}

/** The objects of which nothing is known, a line each. */
export function describeNotShown({ counts, notShown }: Verification): readonly string[] {
  const lines = notShown.map((object) => `  ${objectNameOf(object)}: ${object.reason}`);
  const more = counts.notShown - notShown.length;
  return more > 0 ? [...lines, `  and ${grouped(more)} more`] : lines;
}

/** How many of those that were not current are not named, as a line; none where all of them are. */
export function describeUnnamed({ changed, counts }: Verification): readonly string[] {
  const more = counts.changed - changed.length;
  return more > 0 ? [`${grouped(more)} more objects were not current, and are not named`] : [];
}

/** Several verifications in words, on one line. @param notDone the resources of which nothing was shown at all */
export function describeVerifications(verifications: readonly Verification[], notDone: readonly string[]): string {
  const all = verifications.length + notDone.length;
  const counts = totalOf(verifications);
  const shown = verifications.filter(({ outcome }) => outcome === "current").length;
  const left = notDone.length === 0 ? "" : `; nothing is known of ${notDone.join(", ")}`;
  const unknown = counts.notShown === 0 ? "" : `, ${grouped(counts.notShown)} not shown`;
  return (
    `verified: all objects of ${shown} of ${all} resources are current: ${grouped(counts.current)} objects current, ` +
    `${grouped(counts.changed)} changed${unknown}${left}`
  );
}

/**
 * Why several verifications are no statement about one and the same key, in words; `undefined` where they are.
 * @param looks how the API servers encrypted at the end of each; `undefined` where that is not looked at
 */
export function describeChangeAmong(
  looks: readonly (Pick<EncryptionFound, "configHash" | "fingerprint"> | undefined)[],
): string | undefined {
  if (isOne(looks.map((look) => look?.fingerprint))) {
    return undefined;
  }
  // A fingerprint also tells of an API server that joined or left, and of a gap in the watch in which one may have.
  return isOne(looks.map((look) => look?.configHash))
    ? "between two resources an API server may have come, gone or changed its encryption: run again"
    : "the API servers changed their encryption between two resources: run again";
}

function isOne(values: readonly (string | undefined)[]): boolean {
  return new Set(values).size <= 1;
}

/** The sum of their counts. */
export function totalOf(verifications: readonly Verification[]): VerificationCounts {
  const sum = (field: keyof VerificationCounts): number =>
    verifications.reduce((total, { counts }) => total + counts[field], 0);
  return { current: sum("current"), changed: sum("changed"), gone: sum("gone"), notShown: sum("notShown") };
}

function grouped(count: number): string {
  return count.toLocaleString("en-US");
}
