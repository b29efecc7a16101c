import { X509Certificate } from "node:crypto";
import { WEBHOOK_NAME, WEBHOOK_SECRET } from "../../../src/api/names.ts";
import { DEFAULT_APISERVER_DWELL_MS } from "../../../src/certs/rotation-plan.ts";
import { KEYS } from "../../../src/certs/secret-contents.ts";
import { RESYNC_MS } from "../../../src/certs/secret-source.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { isServing } from "../plan.ts";
import { CertsProgram } from "../programs/certs-program.ts";
import { restartReplicas } from "../programs/controller-program.ts";
import { installedIn, NAMESPACE } from "../programs/installed-webhook.ts";
import { isByKsvm, type World } from "../world/world.ts";
import { type SimProcess, timeOf } from "../world/sim-process.ts";
import { certificatesOf, isTrusted } from "../world/tls-trust.ts";
import type { Check } from "./check.ts";

const SECRET = `/registry/secrets/${NAMESPACE}/${WEBHOOK_SECRET}`;
const SECRET_PATH = `/api/v1/namespaces/${NAMESPACE}/secrets/${WEBHOOK_SECRET}`;
const CONFIGURATION_PATH = `/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/${WEBHOOK_NAME}`;
const CONFIGURATION = `/registry/validatingwebhookconfigurations/${WEBHOOK_NAME}`;
/** What an API server follows after at the latest, in worlds where one is late. */
const LATEST_MS = 65_000;
const LOOK_EVERY_MS = 250;
/** Who stood still follows within this time: a look at the Secret that failed is repeated after that, and a request takes its time. */
const FOLLOW_MS = RESYNC_MS + 15_000;
/** What an undisturbed rotation may take, in milliseconds: API servers and replicas follow twice, which takes two minutes. */
const ROTATION_MS = 600_000;
/** What is not repaired for so long after others damaged it counts, although they did, in milliseconds. */
const REPAIR_MS = 120_000;
/** Writes of the Secret, and of the configuration, in a minute: a rotation takes five of each, and others damage them now and then. */
const MAX_WRITES = 60;
/** A renewal that was refused for so long before the certificate ended explains that it ended, in milliseconds. */
const REFUSED_MS = 60_000;
/** Where most requests for the Secret failed for so long, something between lets nobody renew it: it takes several in a row, in milliseconds. */
const DISTURBED_MS = 120_000;
/** A clock that is off by less than that issues certificates that are valid at once, and renews them in time, in milliseconds. */
const RIGHT_MS = 60_000;

/**
 * An API server that follows the configuration of the webhook verifies every replica that follows the Secret, at any time: also
 * while a rotation is under way, or several at once. Rotations end, with one CA left, and nobody writes in a loop.
 */
export class TrustCheck implements Check {
  readonly name = "trust";
  readonly #world: World;
  readonly #isOurs: () => boolean;
  /** Since when API servers and replicas have been awake, and follow within their times, by their names. */
  readonly #awakeSince = new Map<string, number>();
  /** Until when what others did, or the beginning, explains that there is no trust. */
  #excusedUntil = Number.POSITIVE_INFINITY;
  #excusedAt = 0;
  readonly #writes = new Map<string, number[]>();
  /** Since when no write of the Secret succeeds, as where a webhook of others refuses it; `undefined` where the last one did. */
  #refusedSince: number | undefined;
  /** Since when nobody may read the configuration of the webhook, without which nobody renews a certificate. */
  #unreadSince: number | undefined;
  /** How requests for the Secret ended of late. */
  #ends: readonly { readonly at: number; readonly isFine: boolean }[] = [];
  /** Whether a clock was wrong once: certificates that live for minutes may end then before they are replaced. */
  #wasClockWrong = false;
  /** Whether all certificates were made by a clock that was wrong, as where there are none. Only the next rotation changes that. */
  #isMadeByWrongClock = false;

  private constructor(world: World, isOurs: () => boolean) {
    this.#world = world;
    this.#isOurs = isOurs;
    const { etcd } = world.cluster;
    etcd.onRevision((entry) => this.#written(entry));
    etcd.onRestore(() => this.#excuse());
    this.#followWrites();
    this.#lookAgain();
  }

  /**
   * @param isOurs whether ksvm writes the revision that etcd tells of
   * @returns one for a world that has the webhook.
   */
  static of(world: World, isOurs: () => boolean = isByKsvm): Check {
    const isInstalled = world.plan.programs.some(isServing);
    return isInstalled ? new TrustCheck(world, isOurs) : { name: "trust" };
  }

  async finish(): Promise<void> {
    const world = this.#world;
    restartReplicas(world);
    const last = new CertsProgram(world, { name: "ksvm-last-rotation", rotates: true });
    const isOver = (): boolean => world.isBroken || last.isAtRest;
    if (!(await world.schedule.run(isOver, ROTATION_MS))) this.#violate("the last rotation does not end");
    if (world.isBroken) return;
    if (last.endText !== "done") this.#violate(`an undisturbed rotation ends with: ${last.endText}`);
    const secret = world.cluster.etcd.get(SECRET)?.object as { data?: Readonly<Record<string, string>> } | undefined;
    const cas = certificatesOf(secret?.data?.[KEYS.bundle] ?? "").length;
    if (cas !== 1) this.#violate(`${cas} CAs are left after an undisturbed rotation`);
    // The replicas follow what was written last.
    await world.schedule.run(() => world.isBroken, FOLLOW_MS);
    if (!world.isBroken) this.#lookAtAll();
  }

  #written({ key, before }: EtcdEntry): void {
    if (key !== SECRET && key !== CONFIGURATION) return;
    // Where the Secret is missing, new certificates take the place of those that are served, without an overlap.
    const isNew = before === undefined || before.isDeleted;
    if (!this.#isOurs() || isNew || this.#wasOfWrongClock(before)) this.#excuse();
    if (isNew && key === SECRET) this.#isMadeByWrongClock = this.#isClockWrong();
    if (!this.#isOurs()) return;
    const { now } = this.#world.schedule;
    const times = [...(this.#writes.get(key) ?? []), now].filter((at) => at > now - 60_000);
    this.#writes.set(key, times);
    if (times.length === MAX_WRITES) this.#violate(`${key} was written ${MAX_WRITES} times in a minute`);
  }

  #followWrites(): void {
    const { cluster, schedule } = this.#world;
    const { onExchange } = cluster;
    cluster.onExchange = (request, process) => {
      const ended = onExchange(request, process);
      const isRead = request.path === CONFIGURATION_PATH && request.method === "GET";
      if (request.path !== SECRET_PATH && !isRead) return ended;
      return (answer) => {
        const { status = 0 } = answer ?? {};
        if (isRead) {
          this.#unreadSince =
            (status >= 200 && status < 300) || status === 404 ? undefined : (this.#unreadSince ?? schedule.now);
          return ended(answer);
        }
        const isDone = status < 300 && status >= 200;
        const isFine = isDone || status === 409 || (status === 404 && cluster.etcd.get(SECRET) === undefined);
        this.#ends = [...this.#ends.filter(({ at }) => at > schedule.now - DISTURBED_MS), { at: schedule.now, isFine }];
        // After a conflict another replica wrote it.
        if (request.method === "PUT" && isDone) this.#refusedSince = undefined;
        else if (request.method === "PUT" && status !== 409) this.#refusedSince ??= schedule.now;
        ended(answer);
      };
    };
  }

  /** Whether a certificate has ended that nobody could renew. */
  #isRefused(certPem: string | undefined, now: number): boolean {
    if (certPem === undefined) return false;
    const endsAt = new X509Certificate(certPem).validToDate.getTime();
    const { length } = this.#ends;
    const areMostLost = length > 0 && this.#ends.filter(({ isFine }) => !isFine).length > length / 2;
    const isRefused = [this.#refusedSince, this.#unreadSince].some(
      (since) => since !== undefined && timeOf({ now: since + REFUSED_MS }) <= endsAt,
    );
    return now >= endsAt && (areMostLost || isRefused);
  }

  /** Others damaged something, which has to be repaired. */
  #excuse(): void {
    this.#excusedUntil = Number.POSITIVE_INFINITY;
    this.#excusedAt = this.#world.schedule.now;
  }

  #lookAgain(): void {
    this.#world.schedule.in(LOOK_EVERY_MS, () => {
      this.#look();
      this.#lookAgain();
    });
  }

  /** At the end every replica that a plan has is ready, and every API server has a configuration by which it trusts each of them. */
  #lookAtAll(): void {
    const { cluster, plan, programs, schedule } = this.#world;
    const { replicas } = installedIn(this.#world).service;
    for (const [slot, program] of plan.programs.entries()) {
      if (!isServing(program) || programs[slot] === undefined) continue;
      const { name } = programs[slot].process;
      const replica = replicas.find(({ process }) => process.name === name);
      const lacks = replica === undefined ? "it is gone" : replica.ready();
      if (lacks !== undefined) return this.#violate(`${name} is not ready at the end: ${lacks}`);
      for (const { api, process } of cluster.nodes) {
        const hook = api.admission.validating.find((one) => one.name === WEBHOOK_NAME);
        if (hook === undefined) return this.#violate(`${process.name} has no configuration of the webhook at the end`);
        const served = replica?.certPem() ?? "";
        if (!isTrusted(hook.caBundle ?? "", served, timeOf(schedule)))
          return this.#violate(`${process.name} does not trust ${name} at the end`);
      }
    }
  }

  #isClockWrong(): boolean {
    const { cluster, programs } = this.#world;
    return programs.some(hasWrongClock) || cluster.nodes.some(hasWrongClock);
  }

  /** Whether a certificate that is not valid at this moment is what wrong clocks may lead to. */
  #isOfWrongClock(certPem: string | undefined, now: number): boolean {
    if (certPem === undefined || !this.#wasClockWrong) return false;
    const { validFromDate, validToDate } = new X509Certificate(certPem);
    const isOver = now >= validToDate.getTime();
    return isOver
      ? this.#world.plan.lifetimes !== undefined
      : this.#isMadeByWrongClock && now < validFromDate.getTime();
  }

  /**
   * Whether a Secret held what no API server trusted, as wrong clocks may have it: what replaces it needs no overlap, and API servers
   * follow a moment later.
   */
  #wasOfWrongClock({ key, object }: EtcdEntry): boolean {
    if (key !== SECRET) return false;
    const served = (object as { data?: Readonly<Record<string, string>> }).data?.[KEYS.certificate] ?? "";
    const [certificate] = certificatesOf(served);
    return this.#isOfWrongClock(certificate?.toString(), timeOf(this.#world.schedule));
  }

  #look(): void {
    const { cluster, isCalm, calmAt, schedule } = this.#world;
    const { now } = schedule;
    this.#wasClockWrong ||= this.#isClockWrong();
    const replicas = installedIn(this.#world).service.replicas.filter(({ process, ready }) =>
      this.#isAwake(process.name, process.isPaused, now, FOLLOW_MS) ? ready() === undefined : false,
    );
    let problem: string | undefined;
    let pairs = 0;
    for (const { api, lags, process } of cluster.nodes) {
      const isLate = lags.admission > DEFAULT_APISERVER_DWELL_MS;
      const isAwake = this.#isAwake(process.name, process.isPaused || isLate, now, LATEST_MS);
      const hook = api.admission.validating.find(({ name }) => name === WEBHOOK_NAME);
      // One that follows later than the dwell time is beyond what a rotation waits for.
      if (!isAwake || hook === undefined) continue;
      pairs += replicas.length;
      const distrusted = replicas.find(({ certPem }) => {
        const served = certPem();
        const time = timeOf(schedule);
        if (served !== undefined && isTrusted(hook.caBundle ?? "", served, time)) return false;
        if (this.#isRefused(served, time)) this.#excuse();
        return !this.#isOfWrongClock(served, time);
      });
      if (distrusted !== undefined) problem ??= `${process.name} does not trust ${distrusted.process.name}`;
    }
    const since = Math.max(calmAt, this.#excusedAt);
    if (problem === undefined) {
      // From now on it has to stay so: what others did last is in force everywhere.
      if (pairs > 0 && now - this.#excusedAt > LATEST_MS) this.#excusedUntil = now;
    } else if (this.#excusedUntil <= now || (isCalm && now - since > REPAIR_MS)) {
      this.#violate(problem);
    }
  }

  #isAwake(name: string, isPaused: boolean, now: number, followMs: number): boolean {
    const since = this.#awakeSince.get(name);
    if (isPaused) {
      this.#awakeSince.set(name, Number.POSITIVE_INFINITY);
      return false;
    }
    if (since === undefined) this.#awakeSince.set(name, 0);
    else if (since === Number.POSITIVE_INFINITY) this.#awakeSince.set(name, now);
    return now - (this.#awakeSince.get(name) ?? now) > followMs;
  }

  #violate(text: string): void {
    this.#world.violate(`trust: ${text}`);
  }
}

function hasWrongClock(owner: { readonly process: SimProcess } | undefined): boolean {
  return Math.abs(owner?.process.aheadMs ?? 0) > RIGHT_MS;
}
