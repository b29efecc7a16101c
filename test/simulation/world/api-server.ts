import type { Random } from "../../chaos/random.ts";
import type { HoldPoint, ModelAnswer, ModelRequest, WebhookAnswer } from "../model/answers.ts";
import { SimApiServer } from "../model/api-server.ts";
import { ADMISSION_PREFIXES, type Encryption } from "../model/context.ts";
import type { EtcdEntry, SimEtcd } from "../model/etcd.ts";
import { CRD_PREFIX, type Release } from "../model/kinds.ts";
import type { Peer } from "./network.ts";
import { SimProcess, type StandSort } from "./process.ts";
import { spread } from "./random.ts";
import type { Schedule } from "./schedule.ts";
import { AsyncLocalStorage } from "node:async_hooks";

/** What an API server ends a request after, in milliseconds (`--request-timeout`). */
export const REQUEST_TIMEOUT_MS = 60_000;
/** etcd may commit what was sent to it so long after an API server gave up on it, in milliseconds. */
const COMMIT_MS = 5_000;
const RENEW_EVERY_MS = 10_000;
/** Few objects have several pages. */
const PAGE_SIZE = 7;
/** What the last answer of one that ends needs to be on its way, in milliseconds. */
const ANSWERED_MS = 10;
/** Bookmarks, and the ends of watches. */
const TICK_MS = 10_000;

/** What an API server works on: for which request, since when, and until when it may go on. */
interface Work {
  readonly request: ModelRequest;
  /** By the clock of the schedule. */
  readonly since: number;
  readonly deadline: number;
}

/** Most requests are not held. */
const NOT_HELD = Promise.resolve();

const working = new AsyncLocalStorage<Work>();

/** Who wrote the revision that etcd tells of at this moment; `undefined` for an API server itself. */
export function currentWriter(): string | undefined {
  return working.getStore()?.request.user;
}

/** When the API server got the request that the revision which etcd tells of at this moment comes of; `undefined` for an API server itself. */
export function currentRequestSince(): number | undefined {
  return working.getStore()?.since;
}

/**
 * What an API server takes how long to follow, in milliseconds. `crds` says how far its watch cache is behind a CRD. Its handlers and
 * its discovery follow that.
 */
export interface Lags {
  crds: number;
  handlers: number;
  discovery: number;
  admission: number;
  cache: number;
}

/** Of an API server that is late with nothing. */
const PROMPT: Readonly<Lags> = { crds: 1, handlers: 50, discovery: 50, admission: 50, cache: 5 };

/** The program that an API server runs, and the keys that it is started with. */
export interface ServerBuild {
  readonly release: Release;
  readonly encryption: Encryption;
}

/** What an {@link ApiServerNode} is made of. */
interface ApiServerNodeOptions {
  readonly schedule: Schedule;
  readonly random: Random;
  readonly etcd: SimEtcd;
  readonly name: string;
  readonly url: string;
  /** How it is started. */
  readonly build: ServerBuild;
  /** Calls a webhook, as `ModelIo` has it. */
  readonly callWebhook: (url: string, body: string) => Promise<WebhookAnswer>;
}

/** One API server of the model in a process of its own, that takes its time. */
export class ApiServerNode implements Peer {
  readonly url: string;
  readonly process: SimProcess;
  readonly api: SimApiServer;
  readonly lags: Lags = { ...PROMPT };
  /** By what slows it down: how long a request is held at most, at each point where it may be, in milliseconds. */
  readonly #slowness = new Map<object, number>();
  #isCacheLate = false;
  #isLeaving = false;
  /** How many requests it works on, watches left out. */
  #underWay = 0;
  readonly #options: ApiServerNodeOptions;
  readonly #forget: (() => void)[];

  constructor(options: ApiServerNodeOptions) {
    const { build, etcd, name, schedule, url } = options;
    this.#options = options;
    this.url = url;
    this.process = new SimProcess(schedule, name);
    // No two clocks agree, and no two processes start at the same moment: by that they are told apart.
    this.process.jump((options.random() - 0.5) * 1_000);
    const { clock } = this.process;
    this.api = new SimApiServer({
      ...build,
      etcd,
      name,
      clock,
      isPrompt: false,
      pageSize: PAGE_SIZE,
      io: {
        hold: (point) => this.#hold(point),
        callWebhook: (hook, body, timeoutMs) => this.#webhook(hook, body, timeoutMs),
      },
    });
    this.api.renewLease();
    this.#every(RENEW_EVERY_MS, () => this.#isLeaving || this.api.renewLease());
    this.#every(TICK_MS, () => this.api.tick());
    // What one that ended did not come to: a CRD that was created shortly before is not established yet.
    this.#exactly(this.lags.discovery, () => this.api.runControllers());
    this.#forget = [etcd.onRevision((entry) => this.#follow(entry))];
    this.process.onCrash(() => {
      for (const forget of this.#forget) forget();
      this.api.stop();
    });
  }

  /** Whether it takes requests, once it goes on where it stands still. */
  get isListening(): boolean {
    return this.process.isAlive && !this.#isLeaving;
  }

  /** Whether it has begun to end. */
  get isLeaving(): boolean {
    return this.#isLeaving;
  }

  /** It knows everything in time from now on. */
  followPromptly(): void {
    Object.assign(this.lags, PROMPT);
  }

  /** Ends in order, as at SIGTERM: its identity Lease is gone at once. What is under way then has until its time is over. */
  leave(): void {
    this.#isLeaving = true;
    this.api.deleteLease();
    this.api.endWatches();
    this.#endOnceIdle();
    this.process.clock.timer(REQUEST_TIMEOUT_MS, () => this.process.crash());
  }

  /** Answers are on their way before it ends. */
  #endOnceIdle(): void {
    if (this.#isLeaving && this.#underWay === 0) this.process.clock.timer(ANSWERED_MS, () => this.process.crash());
  }

  /** Answers, or gives up when the time for the request is over; what is held then never goes on. */
  handle(request: ModelRequest): Promise<ModelAnswer> {
    this.#underWay++;
    const { clock } = this.process;
    const deadline = clock.monotonic() + REQUEST_TIMEOUT_MS;
    return new Promise((resolve) => {
      let isOver = false;
      const end = (answer: ModelAnswer): void => {
        if (isOver) return;
        isOver = true;
        cancel();
        this.#underWay--;
        this.#endOnceIdle();
        resolve(answer);
      };
      const cancel = clock.timer(REQUEST_TIMEOUT_MS, () => end(timedOut(clock.now())));
      void working
        .run({ request, since: this.#options.schedule.now, deadline }, () => this.api.handle(request))
        .then(end);
    });
  }

  /** Has it hang, as by SIGSTOP, or by a suspension of its machine. */
  standStill(ms: number, how: StandSort): void {
    this.#options.schedule.in(ms, this.process.stand(how));
  }

  /** Has it hold each request for up to `holdMs`, at each point where it may be, for `ms` milliseconds. */
  slow(ms: number, holdMs: number): void {
    const cause = {};
    this.#slowness.set(cause, holdMs);
    this.#options.schedule.in(ms, () => this.#slowness.delete(cause));
  }

  /** Nothing slows it down any more. */
  quicken(): void {
    this.#slowness.clear();
  }

  /**
   * One that stood still goes on with what it held, before it notices that the time is over. Where its machine was suspended, what was
   * under way has as much left to go as before. What webhooks took the time of does not go on, though they may fail:
   * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go
   */
  #hold(point: HoldPoint): Promise<void> {
    const { clock, isPaused } = this.process;
    const mostMs = this.#slowness.size === 0 ? 0 : Math.max(...this.#slowness.values());
    const ms = mostMs * this.#options.random() ** 2;
    const deadline = working.getStore()?.deadline ?? Number.POSITIVE_INFINITY;
    const isInTime = clock.monotonic() < deadline || this.#hasJustWoken || point === "written";
    const latest = isInTime && point === "admitted" ? deadline + COMMIT_MS : deadline;
    if (ms < 1 && !isPaused && isInTime) return NOT_HELD;
    const dueAt = clock.monotonic() + ms;
    return new Promise((resolve) => {
      clock.timer(ms, () => {
        const now = clock.monotonic();
        if (now < latest || now > dueAt + 1 || point === "written") resolve();
      });
    });
  }

  get #hasJustWoken(): boolean {
    return this.#options.schedule.now - this.process.wokeAt <= 1;
  }

  async #webhook(url: string, body: string, timeoutMs: number): Promise<WebhookAnswer> {
    const { promise: timeUp, resolve } = Promise.withResolvers<WebhookAnswer>();
    const cancel = this.process.clock.timer(timeoutMs, () => resolve({ error: "context deadline exceeded" }));
    const answer = await Promise.race([timeUp, this.#options.callWebhook(url, body)]);
    cancel();
    return new Promise((come) => this.process.reach(() => come(answer)));
  }

  #every(ms: number, run: () => void): void {
    const again = (): void => {
      run();
      this.process.clock.timer(ms, again);
    };
    this.process.clock.timer(ms, again);
  }

  #follow({ isDeleted, key, modRevision }: EtcdEntry): void {
    const { api, lags } = this;
    if (key.startsWith(CRD_PREFIX)) {
      const name = key.slice(CRD_PREFIX.length);
      this.#exactly(lags.crds, () => {
        api.seeCrds(modRevision);
        this.#later(lags.handlers, () => api.followCrds(name, modRevision));
        this.#later(lags.discovery, () => api.followDiscovery(name, modRevision));
        this.#later(lags.discovery, () => api.runControllers());
      });
    } else if (ADMISSION_PREFIXES.some((prefix) => key.startsWith(prefix))) {
      this.#later(lags.admission, () => api.followAdmission());
    } else if (isDeleted) {
      // A CRD that is deleted waits for its last object.
      this.#exactly(lags.discovery, () => api.runControllers());
    }
    this.#lagCache();
  }

  /** Each revision comes as late as the others: what is written later does not hurry it. */
  #lagCache(): void {
    const { cache } = this.lags;
    if (cache < 20) {
      if (this.#isCacheLate) this.api.resumeCache();
      this.#isCacheLate = false;
      return;
    }
    this.#isCacheLate = true;
    this.api.pauseCache();
    const { revision } = this.#options.etcd;
    this.#exactly(cache, () => {
      if (this.#isCacheLate) this.api.resumeCache(revision);
    });
  }

  #later(lagMs: number, run: () => void): void {
    // One that is late is so by a quarter of that at the least.
    this.#exactly(spread(this.#options.random, lagMs > 1_000 ? lagMs / 4 : 1, Math.max(2, lagMs)), run);
  }

  #exactly(ms: number, run: () => void): void {
    this.#options.schedule.in(ms, () => this.process.reach(run));
  }
}

/** What the API server's timeout filter answers. */
function timedOut(now: number): ModelAnswer {
  const message = "Timeout: request did not complete within the allotted timeout";
  const status = {
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    message,
    reason: "Timeout",
    code: 504,
  };
  const headers = { "content-type": "application/json", date: new Date(now).toUTCString() };
  return { status: 504, headers, body: JSON.stringify(status) };
}
