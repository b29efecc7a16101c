import { resourcePathOf } from "../model/paths.ts";
import { collectionOf } from "../world/kinds.ts";
import type { Plan, ProgramPlan } from "../plan.ts";
import type { World } from "../world/world.ts";
import type { Check } from "./check.ts";

/** What a process may do to a cluster at most. */
export interface LoadBounds {
  /** Writes of objects, and looks at them, under way at the same time: `--max-in-flight`. */
  readonly objectsInFlight: number;
  /** All requests under way at the same time, watches left out. */
  readonly inFlight: number;
  /** Requests in a minute in which less than one in ten succeeds. */
  readonly failuresPerMinute: number;
  /** Writes of objects, and looks at them, in a minute that are not answered with 2xx. */
  readonly objectFailuresPerMinute: number;
  /** Requests in a minute that neither write an object nor look for one, openings of watches among them, whatever comes of them. */
  readonly othersPerMinute: number;
  /** Writes in a minute of policies, bindings and webhook configurations, whatever comes of them. */
  readonly guardWritesPerMinute: number;
  /** Times that the process waits for at the same moment: each request, watch and pause has one or two. */
  readonly timers: number;
}

/** A request that a process sends. */
export interface LoadRequest {
  readonly process: string;
  readonly method: string;
  readonly path: string;
  readonly isWatch: boolean;
  /** Whether it writes an object that is migrated, or looks for one. */
  readonly isOfObject: boolean;
  /** Whether it writes a policy, a binding or the configuration of a webhook. */
  readonly isOfGuard: boolean;
  /** The path of the migration whose status it writes. */
  readonly migration?: string | undefined;
  /** The plural of a resource that a run begins with: it lists one object then. */
  readonly begins?: string | undefined;
}

/** What an API server says in its answers as long as priority and fairness decide; a webhook that denies does not say it. */
export const FAIRNESS_HEADER = "x-kubernetes-pf-flowschema-uid";

/** How a request ended. */
export interface LoadAnswer {
  /** `undefined` where none came. */
  readonly status: number | undefined;
  /** The header. */
  readonly retryAfter?: string | undefined;
}

interface ProcessLoad {
  inFlight: number;
  objectsInFlight: number;
  /** When requests ended, and whether they failed, of the last minute. */
  ended: { readonly at: number; readonly isFailure: boolean }[];
  failures: number;
  /** When writes of objects and looks at them failed. */
  readonly objectFailures: number[];
  /** When other requests ended. */
  readonly others: number[];
  /** When the status of each migration was written last. */
  readonly migrations: Map<string, number>;
  /** When writes of guards ended. */
  readonly guards: number[];
  /** Until when an object must be left alone, by the path of its write. */
  readonly notBefore: Map<string, number>;
  /** The bounds that it has passed. */
  readonly passed: Set<keyof LoadBounds>;
}

/**
 * What one process of ksvm keeps to, as measured in some thousand worlds, and some more. Writes of objects fail some 110 times in a
 * minute at most there, and 670 times where a run may write none of 150 objects and tries each of them for a while.
 */
export const BOUNDS: LoadBounds = {
  objectsInFlight: 16,
  inFlight: 60,
  failuresPerMinute: 800,
  objectFailuresPerMinute: 1_000,
  othersPerMinute: 1_450,
  guardWritesPerMinute: 60,
  timers: 300,
};

/**
 * Who does not migrate asks less in a minute, and keeps to it however disturbed it is. Where the Secret is missing, two replicas of the webhook may
 * each hold a CA of their own, and restore two configurations 20 times, with five requests each time (src/webhook/object-repair.ts). Behind one
 * address, each look whether API servers trust a new CA takes some twenty questions.
 */
const OTHERS: Partial<Record<ProgramPlan["run"], number>> = {
  webhook: 400,
  ensureCertificates: 400,
  rotateCertificates: 400,
  init: 600,
};
/**
 * Where API servers share one address, each question is asked some twenty times, to meet each of them. A load balancer that answers one in thirty
 * by itself has a run ask all of it again, twice a second: 3,001 requests in a minute.
 */
const SAMPLED_OTHERS = 3_500;
/**
 * A queue of migrations is worked off without a pause: each of a few objects takes ten seconds, and asks some 250 times. A replica that leads
 * twice in a minute reads discovery and begins each migration twice: 2,661 requests with eight of them, each counted once below.
 */
const CONTROLLER_OTHERS = 3_000;
/**
 * So much more for each migration whose status the process writes in that minute. Where nothing is to be waited for, a run takes a second and
 * asks some 100 times, 35 runs in a minute were measured, and the migrations behind it show their new place in the queue. Each counts once: who
 * carries one out again and again does not get more.
 */
const OTHERS_PER_MIGRATION = 20;

function othersOf({ access, programs }: Plan, process: string): number {
  const slot = Number(/^ksvm-(\d+)-/.exec(process)?.[1]);
  const { run } = programs[slot] ?? {};
  const own = run && OTHERS[run];
  if (own !== undefined) return own;
  if (access === "sampled") return SAMPLED_OTHERS;
  return run === "controller" ? CONTROLLER_OTHERS : BOUNDS.othersPerMinute;
}

/** What there was at most in each world that this process played, for who wants to measure it. */
export const peaksOfAll: LoadBounds[] = [];

const GUARDS = "/apis/admissionregistration.k8s.io/";
const STATUS_OF_MIGRATION = /^\/apis\/migration\.k8s\.io\/\w+\/storageversionmigrations\/[^/]+\/status$/;
const MINUTE_MS = 60_000;
/** Longer than this no `Retry-After` is obeyed, in milliseconds. */
const MAX_RETRY_AFTER_MS = 120_000;

/** What each process of ksvm does to the API servers stays within bounds all the time, and it waits where it is asked to. */
export class LoadCheck {
  readonly #bounds: LoadBounds;
  readonly #othersOf: (process: string) => number;
  readonly #now: () => number;
  readonly #report: (violation: string) => void;
  readonly #loads = new Map<string, ProcessLoad>();
  /** The most that there was of each. */
  readonly peaks = {
    inFlight: 0,
    objectsInFlight: 0,
    failuresPerMinute: 0,
    objectFailuresPerMinute: 0,
    othersPerMinute: 0,
    guardWritesPerMinute: 0,
    timers: 0,
  };

  /** @param othersOf `othersPerMinute` of one process, where it is not that of the others */
  constructor(
    bounds: LoadBounds,
    now: () => number,
    report: (violation: string) => void,
    othersOf: (process: string) => number = () => bounds.othersPerMinute,
  ) {
    this.#othersOf = othersOf;
    this.#bounds = bounds;
    this.#now = now;
    this.#report = report;
  }

  /** @returns one for a world. */
  static of(world: World): Check {
    const { cluster, plan, schedule, settings } = world;
    const collections = plan.kinds.flatMap((kind) => kind.versions.map((version) => collectionOf(kind, version)));
    const bounds = { ...BOUNDS, objectsInFlight: plan.maxInFlight ?? settings.maxInFlight };
    const load = new LoadCheck(
      bounds,
      () => schedule.now,
      (violation) => world.violate(`load: ${violation}`),
      (process) => othersOf(plan, process),
    );
    cluster.onExchange = ({ method, path, query }, process) => {
      const isOfKind = collections.some((collection) => path.startsWith(collection));
      const isWatch = query.has("watch");
      const isOfObject = isOfKind && !isWatch && (method === "PATCH" || query.has("fieldSelector"));
      const isOfGuard = method !== "GET" && path.startsWith(GUARDS);
      const begins = method === "GET" && query.get("limit") === "1" ? resourcePathOf(path)?.resource : undefined;
      const migration = method === "PATCH" && STATUS_OF_MIGRATION.test(path) ? path : undefined;
      const request = { process: process.name, method, path, isWatch, isOfObject, isOfGuard, migration, begins };
      const ended = load.begin(request, process.timers);
      return (answer) => {
        const isOfServer = answer?.headers[FAIRNESS_HEADER] !== undefined;
        ended({ status: answer?.status, retryAfter: isOfServer ? answer.headers["retry-after"] : undefined });
      };
    };
    peaksOfAll.push(load.peaks);
    return { name: "load" };
  }

  /** A request is sent. @param timers how many times its process waits for @returns what is told how it ended */
  begin(request: LoadRequest, timers: number): (answer: LoadAnswer) => void {
    const { begins, process, isWatch, isOfObject } = request;
    const load = this.#of(process);
    if (begins !== undefined) forgetWrites(load, begins);
    this.#bound(process, "timers", timers);
    if (!isWatch) this.#bound(process, "inFlight", ++load.inFlight);
    if (isOfObject) {
      this.#bound(process, "objectsInFlight", ++load.objectsInFlight);
      this.#isPatient(load, request);
    }
    let isOver = false;
    return (answer) => {
      if (isOver) return;
      isOver = true;
      if (!isWatch) load.inFlight--;
      if (isOfObject) load.objectsInFlight--;
      this.#ended(load, request, answer);
      const ms = retryAfterMs(answer);
      if (isOfObject && request.method === "PATCH" && ms > 0) load.notBefore.set(request.path, this.#now() + ms);
    };
  }

  /** A process that has crashed has nothing under way. */
  forget(process: string): void {
    this.#loads.delete(process);
  }

  #isPatient(load: ProcessLoad, { method, path, process }: LoadRequest): void {
    const notBefore = method === "PATCH" ? load.notBefore.get(path) : undefined;
    if (notBefore === undefined) return;
    load.notBefore.delete(path);
    const early = notBefore - this.#now();
    // An answer is on its way for some milliseconds.
    if (early > 50)
      this.#report(`${process} sends a write of ${path} ${Math.round(early)} ms before Retry-After is over`);
  }

  /** A watch ends here where it is opened. */
  #ended(load: ProcessLoad, { isOfGuard, isOfObject, migration, process }: LoadRequest, answer: LoadAnswer): void {
    const isFailure = isFailed(answer);
    this.#failuresOf(process, load, isFailure);
    if (migration !== undefined) load.migrations.set(migration, this.#now());
    if (!isOfObject) this.#bound(process, "othersPerMinute", this.#lastMinute(load.others));
    else if (isFailure) this.#bound(process, "objectFailuresPerMinute", this.#lastMinute(load.objectFailures));
    if (isOfGuard) this.#bound(process, "guardWritesPerMinute", this.#lastMinute(load.guards));
  }

  #failuresOf(process: string, load: ProcessLoad, isFailure: boolean): void {
    const now = this.#now();
    load.ended.push({ at: now, isFailure });
    if (isFailure) load.failures++;
    while ((load.ended[0]?.at ?? now) < now - MINUTE_MS) if (load.ended.shift()?.isFailure === true) load.failures--;
    if (load.failures * 10 > load.ended.length * 9) this.#bound(process, "failuresPerMinute", load.failures);
  }

  /** Notes that something has happened at this moment. @returns how many times it did in the last minute */
  #lastMinute(times: number[]): number {
    const now = this.#now();
    times.push(now);
    while ((times[0] ?? now) < now - MINUTE_MS) times.shift();
    return times.length;
  }

  #bound(process: string, what: keyof LoadBounds, value: number): void {
    const ofAll = what === "othersPerMinute" ? this.#othersOf(process) : this.#bounds[what];
    this.peaks[what] = Math.max(this.peaks[what], value);
    const load = this.#of(process);
    // Once is enough. What is counted only now and then may pass its bound by more than one.
    if (value <= ofAll || load.passed.has(what)) return;
    const bound = what === "othersPerMinute" ? ofAll + OTHERS_PER_MIGRATION * this.#migrationsOf(load) : ofAll;
    if (value <= bound) return;
    load.passed.add(what);
    this.#report(`${process} has ${value} of ${what}, more than ${bound}`);
  }

  /** @returns of how many migrations the status was written in the last minute */
  #migrationsOf({ migrations }: ProcessLoad): number {
    const since = this.#now() - MINUTE_MS;
    return [...migrations.values()].filter((at) => at >= since).length;
  }

  #of(process: string): ProcessLoad {
    let load = this.#loads.get(process);
    if (load === undefined) {
      load = {
        inFlight: 0,
        objectsInFlight: 0,
        ended: [],
        failures: 0,
        objectFailures: [],
        others: [],
        migrations: new Map(),
        guards: [],
        notBefore: new Map(),
        passed: new Set(),
      };
      this.#loads.set(process, load);
    }
    return load;
  }
}

/** A run that begins knows nothing of what another one was told, as where a replica leads again. */
function forgetWrites({ notBefore }: ProcessLoad, plural: string): void {
  for (const path of notBefore.keys()) if (path.includes(`/${plural}/`)) notBefore.delete(path);
}

/** A refusal is one as well, whatever it is about: who asks on without a pause is refused on. */
function isFailed({ status }: LoadAnswer): boolean {
  return status === undefined || status >= 400;
}

/** Of an overloaded API server: what else has the header says nothing of load. */
function retryAfterMs({ retryAfter = "", status }: LoadAnswer): number {
  if (status !== 429 && status !== 503) return 0;
  const seconds = /^\d+$/.test(retryAfter) ? Number(retryAfter) : 0;
  return Math.min(MAX_RETRY_AFTER_MS, seconds * 1_000);
}
