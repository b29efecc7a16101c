import { KsvmError } from "../errors.ts";
import type { WarningEvent } from "../retry/events.ts";
import type { Answered } from "./encryption-agreement.ts";
import type { KmsV1Use } from "./encryption-metrics.ts";

/** A look at the API servers. */
export interface KmsV1Look {
  /** `plural.group` of what is re-encrypted; `undefined` where it is a look is at no resource by itself. */
  readonly resource: string | undefined;
  readonly answers: readonly Answered[];
  /** Whether objects were written between the first look and this one. */
  readonly isRepeated: boolean;
}

/** Who looks. */
export interface KmsV1Options {
  /** Claims nothing of a key: it warns where others fail, and ends without that claim. */
  readonly isOptional?: boolean;
  /** Has no flags. */
  readonly isUnattended?: boolean;
}

const NO_USE: KmsV1Use = { reads: 0, writes: 0 };
const UNKNOWN = "a KMS v1 plugin shows its key nowhere, and no object is written again when that key changes";

/**
 * Notices where KMS v1 plugins encrypt: nothing shows which key one of them uses. An API server takes no object for stale because the key of
 * its KMS v1 plugin changed, so a run on it writes nothing, finds all of it current, and proves nothing.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/value/encrypt/envelope/envelope.go
 */
export class KmsV1 {
  readonly #options: KmsV1Options;
  readonly #uses = new Map<string, { readonly before: KmsV1Use; readonly after: KmsV1Use }>();

  constructor(options: KmsV1Options) {
    this.#options = options;
  }

  /**
   * Notes what a look shows.
   * @throws {KsvmError} EncryptionUnknown where such a plugin encrypts what is re-encrypted.
   */
  note({ answers, isRepeated, resource }: KmsV1Look, emit: (event: WarningEvent) => void): void {
    if (resource === undefined) {
      return;
    }
    const known = this.#uses.get(resource);
    const after = kmsV1UseOf(answers, resource);
    this.#uses.set(resource, { before: (isRepeated ? known?.before : undefined) ?? after, after });
    if (this.#options.isOptional !== true) {
      this.showsKey(resource, 1);
    } else if (known === undefined && after.reads + after.writes > 0) {
      const message = `a KMS v1 plugin decrypts or encrypts "${resource}": if the configuration has it first, nothing is shown of a key, since ${UNKNOWN}`;
      emit({ type: "warning", message });
    }
  }

  /**
   * Whether no such plugin encrypts what a run found as it should be. One that no longer encrypts still decrypts what it encrypted
   * before, but then these objects are written again, without it.
   * @param rewritten how many objects were written again between the first look and the last one
   * @throws {KsvmError} EncryptionUnknown where one does, and a key is claimed
   */
  showsKey(resource: string, rewritten: number): boolean {
    const { after, before } = this.#uses.get(resource) ?? { after: NO_USE, before: NO_USE };
    const isEncrypting = after.writes > 0 || (rewritten === 0 && after.reads > before.reads);
    if (isEncrypting && this.#options.isOptional !== true) {
      const orAssume =
        this.#options.isUnattended === true
          ? ""
          : ", or pass --assume-config-rolled-out if the configuration names another plugin than before";
      const text = `Cannot tell which key "${resource}" has: ${UNKNOWN}; go over to KMS v2, see docs/reencryption.md${orAssume}`;
      throw new KsvmError("EncryptionUnknown", text);
    }
    return !isEncrypting;
  }
}

/** How many objects of the resource the API servers passed through such plugins; one that answered twice counts once. */
function kmsV1UseOf(answers: readonly Answered[], resource: string): KmsV1Use {
  const perServer = new Map<string, KmsV1Use>();
  for (const { server, shown } of answers) {
    if (typeof shown !== "string") {
      const { reads, writes } = shown.kmsV1?.get(resource) ?? NO_USE;
      const key = shown.serverIdHash === "" ? server : shown.serverIdHash;
      const known = perServer.get(key) ?? NO_USE;
      perServer.set(key, { reads: Math.max(known.reads, reads), writes: Math.max(known.writes, writes) });
    }
  }
  return [...perServer.values()].reduce(
    (sum, { reads, writes }) => ({
      reads: sum.reads + reads,
      writes: sum.writes + writes,
    }),
    NO_USE,
  );
}
