import { KsvmError } from "../errors.ts";
import { isValidAt, type ValidityPeriod } from "../serving/certificates.ts";

/** What the plan takes of a certificate. */
export interface CertificateFacts extends ValidityPeriod {
  /** SHA-256 of the certificate. */
  readonly fingerprint: string;
}

/** What the Secret holds. Whatever is missing or unreadable there is `undefined` here. */
export interface StoredFacts {
  /** The CA whose key is there to sign with. */
  readonly signer: CertificateFacts | undefined;
  /** The CA that will sign next; the bundle holds it already. */
  readonly next: CertificateFacts | undefined;
  /** The CAs that are trusted. */
  readonly bundle: readonly CertificateFacts[];
  readonly serving:
    | (CertificateFacts & {
        /** Fingerprint of the CA of the bundle that signed it; `undefined` where none did. */
        readonly issuer: string | undefined;
        /** Whether it is valid for every name that is wanted. */
        readonly coversNames: boolean;
        /** Why API servers do not accept it, whatever is valid and trusted. @default they do */
        readonly flaw?: "another installation" | "not for servers" | undefined;
      })
    | undefined;
  /** Since when every API server has shown the bundle with the next CA in it, by the API server's clock. */
  readonly seenAt: number | undefined;
  /**
   * Since when at least the serving certificate of the CA that signs has been in the Secret, by the API server's clock.
   */
  readonly switchedAt: number | undefined;
}

/** Certificates are valid from this many milliseconds before `now`, for machines whose clocks lag behind. */
export const BACKDATE_MS = 5 * 60_000;

const DAY_MS = 86_400_000;

/** The default of `--ca-lifetime`, in milliseconds: a year. */
export const DEFAULT_CA_LIFETIME_MS = 365 * DAY_MS;

/** The default of `--serving-lifetime`, in milliseconds: 90 days, which fit into the last third of the CA's year. */
export const DEFAULT_SERVING_LIFETIME_MS = 90 * DAY_MS;

/** How long API servers and replicas may take to follow by default, in milliseconds. */
export const DEFAULT_FOLLOW_TIMEOUT_MS = 300_000;

/** The default of `--renew-before`: the last third of a certificate's lifetime. */
export const DEFAULT_RENEW_BEFORE = 1 / 3;

/** The default of `--apiserver-dwell`, in milliseconds. */
export const DEFAULT_APISERVER_DWELL_MS = 30_000;

/** The default of `--replica-dwell`, in milliseconds. */
export const DEFAULT_REPLICA_DWELL_MS = 90_000;

/** How certificates are rotated. */
export interface RotationTiming {
  /** The share of a certificate's lifetime, at its end, in which it is renewed; between 0 and 1. */
  readonly renewBefore: number;
  /** Milliseconds between the moment when every API server has shown the new bundle and the use of the new CA. */
  readonly apiServerDwellMs: number;
  /** Milliseconds between the change of the serving certificate and the end of the trust in the old CA. */
  readonly replicaDwellMs: number;
}

/**
 * What is to be done next.
 *
 * - `create`: issue a CA and a serving certificate; nothing that is there can be trusted
 * - `introduceCa`: issue the next CA and add it to the bundle
 * - `proveSeen`: ask every API server for the bundle, then note when
 * - `switchCa`: issue the serving certificate from the next CA, which signs from now on
 * - `noteSwitched`: note that this has been read, so that it was written before
 * - `proveServed`: ask every replica what it serves
 * - `dropOldCas`: leave only the CA that signs in the bundle
 * - `renewServing`: issue a serving certificate from the CA that signs
 * - `wait`: nothing before a moment
 * - `nothing`: nothing before a moment
 * - `clocksDisagree`: nothing, since the step that is due rests on a clock, and it is not known which of two is right
 */
export type RotationStep =
  | (DueStep & {
      /** Where two clocks disagree. @default they agree, or nothing that is in use rests on them */
      readonly clocks?: TwoClocks;
    })
  | { readonly type: "clocksDisagree"; readonly due: DueStep["type"] };

/** The same moment by two clocks, in milliseconds since the Unix epoch, one of which is wrong. */
export interface TwoClocks {
  /** By the clock that the step was planned with. */
  readonly now: number;
  readonly otherNow: number;
  /** Whether API servers accept what is served now by the other clock as well. */
  readonly isOtherInForce: boolean;
}

/** What may be due by one clock. */
type DueStep =
  | { readonly type: "create" | "introduceCa" | "renewServing"; readonly reason: string }
  | { readonly type: "switchCa" | "dropOldCas" }
  | { readonly type: "proveSeen" | "noteSwitched" | "proveServed" }
  | { readonly type: "wait"; readonly until: number; readonly for: "API servers" | "replicas" }
  | { readonly type: "nothing"; readonly until: number };

/** What {@link nextStep} decides on. */
export interface RotationInput extends RotationTiming {
  /** `undefined` where there is no Secret, or nothing in it. */
  readonly stored: StoredFacts | undefined;
  /**
   * The API server's clock, in milliseconds since the Unix epoch: API servers are who judges certificates in the end.
   * This machine's clock where the API server did not tell its own.
   */
  readonly now: number;
  /**
   * How far this machine's clock is ahead of the API server's, in milliseconds; negative where it is behind, 0 where
   * that is unknown.
   */
  readonly clockSkewMs: number;
  /**
   * The time that a wait is counted by, which one process begins and another may end: {@link now}, or where the moment
   * that it began at was noted by an API server with another clock, that clock, as far as the monotonic one can tell.
   */
  readonly waitNow: number;
  /** The webhook configuration had lost part of the bundle a moment ago. */
  readonly drifted: boolean;
  /** No replica that can be asked serves a certificate of an old CA. */
  readonly served: boolean;
  /** Rotates, due or not, for as long as the CA with this fingerprint signs. @default what is due */
  readonly replaceSigner?: string | undefined;
}

const LACKS_NAME = "the serving certificate lacks a name";

const FLAWS = {
  "another installation": "the serving certificate is that of another installation",
  "not for servers": "the serving certificate is not for servers",
} as const;

/** When a certificate is to be renewed: at the begin of the last `renewBefore` of its lifetime. */
export function renewalTimeOf({ notBefore, notAfter }: CertificateFacts, renewBefore: number): number {
  return notAfter - (notAfter - notBefore) * renewBefore;
}

/** One of the clocks, where two of them disagree. */
interface Judging extends RotationInput {
  /** What it shows. Certificates are judged by it, waits by the API server's clock alone: that is what began them. */
  readonly judgedAt: number;
}

/**
 * The next step of a rotation with overlap: a new CA joins the bundle, every API server has seen it, then the serving
 * certificate changes, then the old CA leaves. Any replica that holds the Secret can take it, whichever took the one
 * before.
 */
export function nextStep(input: RotationInput): RotationStep {
  const { stored, now, clockSkewMs } = input;
  if (stored === undefined) {
    return { type: "create", reason: "there is none" };
  }
  const judged = (judgedAt: number): Judgement => ({
    step: dueStep(stored, { ...input, judgedAt }),
    now: judgedAt,
    isInForce: brokenReason(stored, judgedAt) === undefined,
  });
  const server = judged(now);
  const isSure = doClocksAgree(clockSkewMs) || unusableReason(stored) !== undefined;
  return isSure ? server.step : stepByTwoClocks(server, judged(now + clockSkewMs));
}

function dueStep(stored: StoredFacts, input: Judging): DueStep {
  const broken = brokenReason(stored, input.judgedAt);
  if (broken !== undefined && stored.serving?.flaw === "another installation") {
    // Another installation has the keys of those CAs.
    return { type: "create", reason: broken };
  }
  if (stored.next !== undefined && isValidAt(stored.next, input.judgedAt)) {
    return stepOfTwoCas(stored, broken, input);
  }
  return broken === undefined ? stepOfOneCa(stored, input) : repair(stored, broken, input.judgedAt);
}

function stepOfTwoCas(stored: StoredFacts, broken: string | undefined, input: Judging): DueStep {
  const turnedDown = turnedDownReason(stored, input.judgedAt);
  if (turnedDown !== undefined && !isNextSeen(stored, input) && canSign(stored, input.judgedAt)) {
    // API servers trust the CA that signs, where they need not trust the next one yet.
    return { type: "renewServing", reason: turnedDown };
  }
  if (broken !== undefined) {
    return { type: "switchCa" };
  }
  return isHeldUp(stored, input)
    ? { type: "renewServing", reason: "it is due, and the rotation to the next CA is held up" }
    : stepTowardsNext(stored, input);
}

/** Why API servers do not accept the serving certificate at a moment; `undefined` where they do. */
export function brokenReason(stored: StoredFacts, now: number): string | undefined {
  return unusableReason(stored) ?? invalidReason(stored, now);
}

/**
 * Whether replicas turn down what is stored, and go on serving what they had: API servers do not accept it, or not by
 * each name.
 */
export function isTurnedDown(stored: StoredFacts | undefined, now: number): boolean {
  return stored === undefined || turnedDownReason(stored, now) !== undefined;
}

function turnedDownReason(stored: StoredFacts, now: number): string | undefined {
  return brokenReason(stored, now) ?? (stored.serving?.coversNames === false ? LACKS_NAME : undefined);
}

function isNextSeen({ seenAt }: StoredFacts, input: RotationInput): boolean {
  return seenAt !== undefined && !isFromFuture(seenAt, input);
}

/** Why API servers do not accept the serving certificate, whatever time it is. */
function unusableReason({ serving }: StoredFacts): string | undefined {
  if (serving === undefined) {
    return "the serving certificate is missing or unreadable";
  }
  if (serving.issuer === undefined) {
    return "no CA of the bundle signed the serving certificate";
  }
  return serving.flaw && FLAWS[serving.flaw];
}

/** Why API servers do not accept the serving certificate now: all of a chain must be valid. */
function invalidReason({ serving, bundle }: StoredFacts, now: number): string | undefined {
  const issuer = bundle.find(({ fingerprint }) => fingerprint === serving?.issuer);
  return invalidText("the serving certificate", serving, now) ?? invalidText("the CA that signed it", issuer, now);
}

function invalidText(name: string, period: ValidityPeriod | undefined, now: number): string | undefined {
  if (period === undefined || isValidAt(period, now)) {
    return undefined;
  }
  return period.notAfter <= now ? `${name} expired` : `${name} is not valid yet`;
}

function repair(stored: StoredFacts, reason: string, now: number): DueStep {
  return { type: canSign(stored, now) ? "renewServing" : "create", reason };
}

function canSign({ signer }: StoredFacts, now: number): boolean {
  return signer !== undefined && isValidAt(signer, now);
}

/**
 * Whether the serving certificate would end before the rotation does, as where an API server does not show the new CA
 * for weeks: in the last half of the time in which it is renewed, the CA that signs still renews it, as long as that CA
 * is valid for longer. Not where two clocks disagree: a step towards the next CA takes away less.
 */
function isHeldUp({ serving, signer }: StoredFacts, { clockSkewMs, renewBefore, judgedAt }: Judging): boolean {
  return (
    doClocksAgree(clockSkewMs) &&
    serving !== undefined &&
    renewalTimeOf(serving, renewBefore / 2) <= judgedAt &&
    signer !== undefined &&
    isValidAt(signer, judgedAt) &&
    signer.notAfter > serving.notAfter
  );
}

function stepTowardsNext({ seenAt }: StoredFacts, input: RotationInput): DueStep {
  if (seenAt === undefined || isFromFuture(seenAt, input) || input.drifted) {
    return { type: "proveSeen" };
  }
  const until = seenAt + input.apiServerDwellMs;
  return input.waitNow < until ? { type: "wait", until, for: "API servers" } : { type: "switchCa" };
}

/**
 * A clock that was ahead noted it, further than two API servers' clocks can be apart which both agree with the one of a
 * machine: the wait would not end for as long as that clock was ahead.
 */
function isFromFuture(stamp: number, { now }: RotationInput): boolean {
  return stamp > now + 2 * MAX_CLOCK_SKEW_MS;
}

function stepOfOneCa(stored: StoredFacts, input: Judging): DueStep {
  const { signer } = stored;
  if (signer === undefined) {
    return { type: "introduceCa", reason: "the CA's key is missing or unreadable" };
  }
  const caReason = caRenewalReason(signer, input);
  if (caReason !== undefined) {
    return { type: "introduceCa", reason: caReason };
  }
  const servingReason = servingRenewalReason(stored, signer, input);
  if (servingReason !== undefined) {
    return { type: "renewServing", reason: servingReason };
  }
  return stored.bundle.some(({ fingerprint }) => fingerprint !== signer.fingerprint)
    ? stepAwayFromOld(stored, input)
    : { type: "nothing", until: nextRenewalOf(stored, input.renewBefore) };
}

function caRenewalReason(signer: CertificateFacts, input: Judging): string | undefined {
  if (input.replaceSigner === signer.fingerprint) {
    return "it was asked for";
  }
  if (signer.notBefore > input.judgedAt) {
    return "the CA is not valid yet";
  }
  return renewalTimeOf(signer, input.renewBefore) <= input.judgedAt ? "the CA is due" : undefined;
}

function servingRenewalReason(
  { serving }: StoredFacts,
  signer: CertificateFacts,
  { renewBefore, judgedAt }: Judging,
): string | undefined {
  if (serving === undefined || renewalTimeOf(serving, renewBefore) <= judgedAt) {
    return "the serving certificate is due";
  }
  if (serving.issuer !== signer.fingerprint) {
    return "another CA than the one that signs issued the serving certificate";
  }
  return serving.coversNames ? undefined : LACKS_NAME;
}

function stepAwayFromOld({ switchedAt }: StoredFacts, input: RotationInput): DueStep {
  if (switchedAt === undefined || isFromFuture(switchedAt, input)) {
    return { type: "noteSwitched" };
  }
  const until = switchedAt + input.replicaDwellMs;
  if (input.waitNow < until) {
    return { type: "wait", until, for: "replicas" };
  }
  return { type: input.served ? "dropOldCas" : "proveServed" };
}

/** When the first of the certificates is due. */
function nextRenewalOf({ signer, serving }: StoredFacts, renewBefore: number): number {
  const times = [signer, serving].flatMap((facts) => (facts === undefined ? [] : renewalTimeOf(facts, renewBefore)));
  return Math.min(...times);
}

/** What one of two clocks says. */
interface Judgement {
  readonly step: DueStep;
  readonly now: number;
  /** API servers accept what is served now. */
  readonly isInForce: boolean;
}

/**
 * What is done where two clocks disagree: only what both have due, in whatever form, and whichever of them is right it
 * takes away nothing that is in force. By a clock that calls what is served invalid there is nothing to lose, so the
 * other one's step is taken.
 */
function stepByTwoClocks(server: Judgement, local: Judgement): RotationStep {
  const [first, second] = server.isInForce || !local.isInForce ? [server, local] : [local, server];
  const step = second.isInForce ? leastOf(first.step, second.step) : first.step;
  if (step !== undefined && step.type !== "nothing") {
    return { ...step, clocks: { now: first.now, otherNow: second.now, isOtherInForce: second.isInForce } };
  }
  return isHarmless(server.step) ? server.step : { type: "clocksDisagree", due: server.step.type };
}

/**
 * Which of two is done first, while what is served is in force by both clocks: a step before another one takes nothing
 * away.
 */
const LEAST_FIRST: readonly DueStep["type"][] = [
  "wait",
  "proveServed",
  "noteSwitched",
  "proveSeen",
  "dropOldCas",
  "introduceCa",
  "renewServing",
];

/**
 * @returns `undefined` where one of them has nothing due, or it is not known that the step breaks nothing by the other
 *   clock
 */
function leastOf(one: DueStep, other: DueStep): DueStep | undefined {
  const [rank, otherRank] = [LEAST_FIRST.indexOf(one.type), LEAST_FIRST.indexOf(other.type)];
  if (one.type === other.type || (rank >= 0 && rank < otherRank)) {
    return one;
  }
  return otherRank >= 0 && otherRank < rank ? other : undefined;
}

/** Whether a step changes nothing that is in use. */
function isHarmless({ type }: DueStep): boolean {
  return type === "wait" || type === "nothing" || type === "proveServed";
}

/**
 * Clocks that are further apart than this, in milliseconds, do not agree on what is valid. Certificates are valid from
 * five minutes before they are issued: as long as one of the two clocks is right, those that are issued by the other
 * one are valid at once.
 */
export const MAX_CLOCK_SKEW_MS = BACKDATE_MS - 60_000;

/**
 * Whether two clocks agree.
 * @param skewMs how far this machine's is ahead of the API server's; negative where it is behind
 */
export function doClocksAgree(skewMs: number): boolean {
  return Math.abs(skewMs) <= MAX_CLOCK_SKEW_MS;
}

const UNITS = [
  ["days", 86_400_000],
  ["hours", 3_600_000],
  ["minutes", 60_000],
] as const;

/** Such as "the clock of this machine is 400 days ahead of the API server's". */
export function skewText(skewMs: number): string {
  const size = Math.abs(skewMs);
  const [unit, unitMs] = UNITS.find(([, ms]) => size >= 2 * ms) ?? ["seconds", 1_000];
  const direction = skewMs < 0 ? "behind" : "ahead of";
  return `the clock of this machine is ${Math.round(size / unitMs)} ${unit} ${direction} the API server's`;
}

/** Nothing is replaced, since it is not known which of the two clocks is right. */
export function clocksDisagree(skewMs: number): KsvmError {
  const text = `Cannot replace certificates: ${skewText(skewMs)}, and one of them is wrong; correct it, run again`;
  return new KsvmError("ClocksDisagree", text);
}
