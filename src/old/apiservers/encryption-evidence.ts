import { REENCRYPT_ANNOTATION } from "../../api/names.ts";
import type { Clock } from "../../clock.ts";
import type { CallContext } from "../retry/call-context.ts";
import type { WarningEvent } from "../retry/events.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import { type ApiServers, serversOf, toldApart } from "./api-servers.ts";
import { identityLeases } from "./control-plane-objects.ts";
import { type Agreement, agreementOf, type Answered, type Disagreement, unheardOf } from "./encryption-agreement.ts";
import { answersOf } from "./encryption-answers.ts";
import { encryptionErrorOf } from "./encryption-errors.ts";
import type { RecentFailure } from "./recent-failure.ts";
import type { ApiServerEvent } from "./events.ts";
import type { Arrivals } from "./arrivals.ts";
import type { SeenChange } from "./settle.ts";

/** What looking at the encryption of API servers takes of a run. */
export interface EncryptionContext extends CallContext {
  readonly clock: Clock;
  readonly arrivals: Arrivals;
  /** Finds every API server that may live; throws MissingApiServer where one of them cannot be asked. */
  readonly findApiServers: (signal: AbortSignal) => Promise<ApiServers>;
  readonly emit: (event: ApiServerEvent | WarningEvent) => void;
  /** Milliseconds that API servers may take to use one configuration. */
  readonly options: { readonly convergenceTimeoutMs: number };
}

/** What a look found: all API servers encrypt alike. */
export interface EncryptionFound {
  /** The digest of their EncryptionConfiguration; {@link ASSUMED} where a user says that it is the same on all. */
  readonly configHash: string;
  /** As in {@link Agreement}. */
  readonly agreement: string;
  /** The same, and with every API server that came or went another one: it may have encrypted otherwise. For this process alone. */
  readonly fingerprint: string;
  /**
   * A write encrypted otherwise may have been under way then. The last look; where a wait for late writes came to its end and
   * nothing else was seen since, the look that this wait counted from.
   */
  readonly since: SeenChange;
}

/** The same, and who the API servers were. */
export interface EncryptionLook extends EncryptionFound {
  readonly apiServers: ApiServers;
  /** What `count` of the {@link Arrivals} was before they were looked for. */
  readonly arrivals: number;
}

/** What kind of a look it is. */
export interface LookOptions {
  /** Whether it confirms an earlier one, after which objects were written. @default false */
  readonly isRepeated?: boolean;
}

/** In place of the digest of a configuration of which there is no evidence. */
const ASSUMED = "assumed";

const ASSUMED_ALIKE: Agreement = { configHash: ASSUMED, fingerprint: ASSUMED, hasKms: false };

const PACE = { minMs: 1_000, maxMs: 5_000 };

/** Whether a look tells the processes of all API servers: two that agree show that none of them restarted in between. */
export function showsProcesses({ configHash }: Pick<EncryptionFound, "configHash">): boolean {
  return configHash !== ASSUMED;
}

/**
 * An API server names a new key of a KMS v2 plugin before it encrypts with it. Where the plugin does not encrypt with the new
 * key, the old one is used for up to three minutes more (`kmsv2PluginWriteDEKSourceMaxTTL`). In milliseconds.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go
 */
const KMS_LAG_MS = 180_000;

/** What a user says of the configuration. */
export interface EncryptionEvidenceOptions {
  /** Asks no API server: a user says that all of them use the new configuration. */
  readonly isAssumed: boolean;
  /** Its digest, as API servers show it. @default any, if all of them use it */
  readonly expectedConfig?: string | undefined;
  /** A first look waits for no API server that differs: who looks tries again, later each time. @default false */
  readonly isUnattended?: boolean;
  /** The last failure of those that mean the same configuration. @default none of others is known */
  readonly recent?: RecentFailure;
}

/**
 * What "re-encrypted" rests on: every API server that lives encrypts with one and the same configuration and key. One for all
 * runs of a process, so that late writes are waited for once and not with each resource.
 */
export class EncryptionEvidence {
  readonly #options: EncryptionEvidenceOptions;
  #agreed: EncryptionFound | undefined;
  #isSettled = false;

  constructor(options: EncryptionEvidenceOptions) {
    this.#options = options;
  }

  /** Whether /metrics are read. */
  get readsMetrics(): boolean {
    return !this.#options.isAssumed;
  }

  /** What the last look found; `undefined` before the first one, and after one that failed. */
  get found(): EncryptionFound | undefined {
    return this.#agreed;
  }

  /**
   * Notes that late writes were waited for, from a look at this `fingerprint` on: the next run does without that wait. A wait
   * that was ended before tells nothing: an API server may have stood still in it, with a write under way.
   */
  settled(fingerprint: string): void {
    this.#isSettled ||= this.#agreed?.fingerprint === fingerprint;
  }

  /**
   * Waits until every API server shows that it encrypts as all others do. They are looked for again each time: an API server
   * that restarts to read a new configuration is another one then.
   * @param what what is re-encrypted, for messages
   * @throws {KsvmError} EncryptionUnknown where one of them does not tell; {EncryptionDiffers}, naming the one that differs.
   * @throws {MissingApiServer} where one of them cannot be asked.
   */
  async look(
    context: EncryptionContext,
    what: string,
    { isRepeated = false }: LookOptions = {},
  ): Promise<EncryptionLook> {
    const { clock, options } = context;
    const { isAssumed, isUnattended = false } = this.#options;
    if (isAssumed) {
      const arrivals = context.arrivals.count;
      const found = this.#note(ASSUMED_ALIKE, arrivals, clock);
      return { ...found, apiServers: await context.findApiServers(context.signal), arrivals };
    }
    // Nothing was written before the first look, so that its place is better given to others.
    const endsAtOnce = isUnattended && !isRepeated;
    const look = endsAtOnce
      ? (this.#options.recent?.recall(clock) ?? (await this.#lookUntilAlike(context, 0)))
      : await this.#lookUntilAlike(context, options.convergenceTimeoutMs);
    if ("apiServers" in look) {
      return look;
    }
    throw encryptionErrorOf(look, what, this.#options);
  }

  /** Looks again and again, for so many milliseconds. @returns what differs where the last look found that */
  async #lookUntilAlike(context: EncryptionContext, timeoutMs: number): Promise<EncryptionLook | Disagreement> {
    const { clock, emit, findApiServers, signal } = context;
    const deadline = clock.monotonic() + timeoutMs;
    const pace = new LoopPace({ clock, ...PACE });
    for (;;) {
      await pace.turn(signal);
      const arrivals = context.arrivals.count;
      const apiServers = await findApiServers(signal);
      const answers = await answersOf(context, apiServers);
      const agreement = this.#agreementOf(apiServers, answers);
      if ("configHash" in agreement) {
        if (this.#agreed?.fingerprint !== fingerprintAfter(agreement, arrivals)) {
          await tell(context, agreement, { apiServers, answers });
        }
        return { ...this.#note(agreement, arrivals, clock), apiServers, arrivals };
      }
      this.#agreed = undefined;
      if (isHopeless(answers) || clock.monotonic() >= deadline) {
        this.#options.recent?.note(agreement, clock);
        return agreement;
      }
      emit({ type: "lagging", server: agreement.server, reason: agreement.reason });
    }
  }

  #agreementOf(apiServers: ApiServers, answers: readonly Answered[]): Agreement | Disagreement {
    const expected = { identities: apiServers.identities ?? [], servers: toldApart(apiServers) };
    const { expectedConfig: configHash, isUnattended = false } = this.#options;
    const namedBy = isUnattended ? `the annotation ${REENCRYPT_ANNOTATION}` : undefined;
    return agreementOf(answers, { ...expected, configHash, namedBy });
  }

  #note(agreement: Agreement, arrivals: number, clock: Clock): EncryptionFound {
    const { configHash, hasKms } = agreement;
    const fingerprint = fingerprintAfter(agreement, arrivals);
    this.#isSettled &&= this.#agreed?.fingerprint === fingerprint;
    if (this.#agreed === undefined || !this.#isSettled) {
      const seenAt = clock.monotonic() + (hasKms ? KMS_LAG_MS : 0);
      const since = { at: undefined, seenAt };
      this.#agreed = { configHash, agreement: agreement.fingerprint, fingerprint, since };
    }
    return this.#agreed;
  }
}

function fingerprintAfter({ fingerprint }: Agreement, arrivals: number): string {
  return `${fingerprint} ${arrivals}`;
}

/** Where no API server tells, none of them is just being restarted to tell. */
function isHopeless(answers: readonly Answered[]): boolean {
  return answers.length > 0 && answers.every(({ isAbsent }) => isAbsent === true);
}

async function tell(
  context: EncryptionContext,
  agreement: Agreement,
  { answers, apiServers }: { readonly apiServers: ApiServers; readonly answers: readonly Answered[] },
): Promise<void> {
  const { configHash: configuration } = agreement;
  context.emit({ type: "encryptingAlike", configuration, apiServers: serversOf(apiServers) });
  await warnOfUnnamed(context, apiServers, answers);
}

/** A user may have left one out, or named an address that leads to several. Its Lease may also be that of one that is gone. */
async function warnOfUnnamed(
  { client, clock, emit, retrier, signal }: EncryptionContext,
  { ignored = [], mode, identities }: ApiServers,
  answers: readonly Answered[],
): Promise<void> {
  if (mode !== "each" || identities !== undefined) {
    return;
  }
  const leases = (await retrier.run(() => identityLeases(client, clock, signal), signal)) ?? [];
  const live = leases.filter(({ isOver, name }) => !isOver && !ignored.includes(name)).map(({ name }) => name);
  const unheard = unheardOf(live, answers);
  if (unheard.length > 0) {
    const text = `no API server of --apiserver-endpoints is that of the identity Lease ${unheard.join(", ")}`;
    emit({ type: "warning", message: `${text}: if that one lives, it may write with another key` });
  }
}
