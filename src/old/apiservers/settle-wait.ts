import type { CustomResourceDefinition } from "../../api/crd.ts";
import { KsvmError } from "../../errors.ts";
import { objectIn } from "../kube/answered-object.ts";
import type { ApiClient } from "../kube/client.ts";
import { versionIn } from "../kube/discovery.ts";
import { CRDS, objectPath } from "../kube/resources.ts";
import type { ApiResponse } from "../kube/api-request.ts";
import { SLOW_ANSWER_MS } from "./ask-all.ts";
import type { CallContext } from "../retry/call-context.ts";
import { type Clock, wallOffsetOf } from "../../clock.ts";
import type { ApiServerEvent, WriteConcern } from "./events.ts";
import type { SeenServers } from "./seen-servers.ts";
import { type SeenChange, pauseAdvice, settleRemainingMs, storageChangeOf } from "./settle.ts";

/** What settling takes of a run. */
export interface SettleContext extends CallContext {
  readonly clock: Clock;
  readonly emit: (event: ApiServerEvent) => void;
  /** What was seen of them before, and is told what is seen now. @default nothing was, and nobody is told */
  readonly seen?: Pick<SeenServers, "silent" | "lagOf" | "settledFor"> | undefined;
  /**
   * All in milliseconds: the settle time, what an API server that does not answer is waited for on top of it, and for how long one that left
   * takes requests.
   */
  readonly options: {
    readonly settleMs: number;
    readonly convergenceTimeoutMs: number;
    readonly shutdownDelayMs?: number | undefined;
  };
}

/** What besides the CRD itself settling counts from. */
export interface SettleOptions {
  /** Missing for a built-in resource, whose storage version changes with the API servers alone. */
  readonly crdName?: string;
  /** `plural.group` of what is migrated: whether an API server was behind with it before. @default `crdName` */
  readonly resource?: string;
  readonly apiServers: readonly ApiClient[];
  /** When the newest API server joined, in milliseconds since the Unix epoch. */
  readonly newestJoin?: number | undefined;
  /** Whether an API server was behind only just now. */
  readonly lagged: boolean;
  /**
   * What `wallOffsetOf()` said before the API servers were looked for. Machines that were suspended since then have clocks by
   * which a change is long past, and a write that was under way has as much left to go as before. @default as it is now
   */
  readonly wallOffset?: number | undefined;
  /** A change that this process saw before, such as one of the encryption of the API servers. @default none */
  readonly earlier?: SeenChange | undefined;
  /** The change of the CRD whose late writes an earlier run has waited for, as `storageChangeOf()` has it. @default none */
  readonly settledChange?: string | undefined;
  /** What a late write may have been done by. @default "version" */
  readonly concern?: WriteConcern;
  /** Milliseconds for which a freeze may still be held where the clock keeps jumping. @default no freeze is held */
  readonly freezeMs?: number | undefined;
}

/** What an API server is asked, and what makes something of its answer. */
interface Question<T> {
  readonly path: string;
  /** @throws {DoubtfulAnswer} where an API server does not answer so: it may be a proxy's, which answers while the API server stands still. */
  readonly read: (body: unknown) => T;
}

const VERSION: Question<string> = { path: "/version", read: versionIn };

/** How often an API server is asked whether it still answers, in milliseconds. */
const POLL_MS = 2_500;
/** A clock that jumps less often is one that was set, or a machine that was suspended now and then. */
const MANY_JUMPS = 3;

/**
 * Waits until a write of an old version that was under way when the storage version changed must have landed or have
 * been ended by its API server. Needs a proven freeze: the storage version cannot change while it waits.
 * @throws {KsvmError} NotConverged, naming an API server that keeps standing still; ClockJumps.
 */
export async function settle(context: SettleContext, options: SettleOptions): Promise<void> {
  const { crdName, lagged, resource = crdName ?? "" } = options;
  const lag = context.seen?.lagOf(resource);
  await new Settling(context, { ...options, lagged: lagged || lag !== undefined }).untilSettled();
  context.seen?.settledFor(resource, lag);
}

class Settling {
  readonly #context: SettleContext;
  readonly #options: SettleOptions;
  /** When an API server that does not answer has been waited for long enough, on the monotonic clock. */
  #deadline: number;
  /** The same of a clock that keeps jumping. */
  readonly #jumpsDeadline: number;
  /** By what tells one change from another. */
  readonly #changes = new Map<string, SeenChange>();
  /** The time of day less the monotonic time: it jumps where this machine was suspended. */
  #wallOffset: number;
  #jumps = 0;
  /** Whether this process stood still in a wait of its own, since that was last asked. */
  #stoodStill = false;

  constructor(context: SettleContext, options: SettleOptions) {
    this.#context = context;
    this.#options = options;
    const { clock, options: settings } = context;
    const limitMs = settings.settleMs + (settings.shutdownDelayMs ?? 0) + settings.convergenceTimeoutMs;
    this.#deadline = clock.monotonic() + limitMs;
    this.#jumpsDeadline = clock.monotonic() + Math.min(limitMs, options.freezeMs ?? limitMs);
    this.#wallOffset = options.wallOffset ?? wallOffsetOf(clock);
    if (this.#hasJumped()) {
      // Before the wait: it is waited through, and is none of those that end the wait.
      this.#saw("suspension before");
    }
    if (options.earlier !== undefined) {
      this.#changes.set("earlier", options.earlier);
    }
    if (options.newestJoin !== undefined) {
      this.#saw("join", options.newestJoin);
    }
  }

  /**
   * Notes a change that an answer shows. Only the first sight of it counts: it happened before that. A change with another
   * `key` has a first sight of its own.
   * @param at its stamp; none where this process itself saw it happen, which its monotonic clock tells exactly
   */
  #saw(key: string, at?: number): void {
    if (!this.#changes.has(key)) {
      this.#changes.set(key, { at, seenAt: this.#context.clock.monotonic() });
    }
  }

  async untilSettled(): Promise<void> {
    const { clock, emit, options: settings } = this.#context;
    const concern = this.#options.concern === undefined ? {} : { concern: this.#options.concern };
    for (let first = true; ; first = false) {
      const { crds, serverNow } = await this.#read();
      if (first && this.#options.lagged) {
        this.#saw("lag");
      }
      for (const crd of crds) {
        const { key, at } = storageChangeOf(crd);
        if (key !== this.#options.settledChange) {
          this.#saw(key, at);
        }
      }
      this.#noticeSuspension();
      const remainingMs = settleRemainingMs({
        settleMs: settings.settleMs,
        serverNow,
        localNow: clock.now(),
        now: clock.monotonic(),
        changes: [...this.#changes.values()],
      });
      if (remainingMs === 0) {
        return;
      }
      emit({ type: "settling", remainingMs, ...concern });
      await this.#sleep(remainingMs);
    }
  }

  /**
   * Machines that are suspended together have their clocks jump: by those the wait would be over, and a write that was under
   * way has as much left to go as before. One jump is waited through, however late it is noticed.
   * @throws {KsvmError} ClockJumps where the clock keeps jumping and the time would be up before the wait is over.
   */
  #noticeSuspension(): void {
    const { clock, options: settings } = this.#context;
    if (this.#hasJumped()) {
      this.#jumps++;
      this.#context.seen?.silent();
      // The end of the wait moves by as much: an API server that was silent once has not kept standing still.
      this.#deadline += settings.settleMs + SLOW_ANSWER_MS;
      if (this.#jumps >= MANY_JUMPS && clock.monotonic() + settings.settleMs > this.#jumpsDeadline) {
        const machine = "the machine that ksvm runs on keeps standing still, or its clock keeps jumping";
        const reason = `${machine}, by more than 5 s, ${this.#jumps} times while it waited`;
        throw new KsvmError("ClockJumps", `Cannot wait for late writes to land: ${reason}`);
      }
      this.#saw(`suspension ${this.#changes.size}`);
    }
  }

  /** Whether the clock jumped since this was last asked, or a monotonic clock that goes on in a suspension shows one. */
  #hasJumped(): boolean {
    const offset = wallOffsetOf(this.#context.clock);
    const hasJumped = Math.abs(offset - this.#wallOffset) > SLOW_ANSWER_MS;
    this.#wallOffset = hasJumped ? offset : this.#wallOffset;
    const stoodStill = this.#stoodStill;
    this.#stoodStill = false;
    return hasJumped || stoodStill;
  }

  /**
   * Asks all the while, and leaves the last question to the read that follows: an API server that stands still, and what is under way on
   * it, has that much longer to go.
   */
  async #sleep(ms: number): Promise<void> {
    const { clock, signal } = this.#context;
    const end = clock.monotonic() + ms;
    for (let leftMs = ms; leftMs > 0; leftMs = end - clock.monotonic()) {
      const pollMs = Math.min(POLL_MS, leftMs);
      const startedAt = clock.monotonic();
      await clock.sleep(pollMs, signal);
      this.#stoodStill ||= clock.monotonic() - startedAt > pollMs + SLOW_ANSWER_MS;
      if (clock.monotonic() < end) {
        await this.#ask(VERSION);
      }
    }
  }

  /** The CRD, where there is one, and the clock of every API server. */
  async #read(): Promise<{ readonly crds: readonly CustomResourceDefinition[]; readonly serverNow: number }> {
    const { crdName } = this.#options;
    if (crdName === undefined) {
      return { crds: [], serverNow: (await this.#ask(VERSION)).serverNow };
    }
    const path = objectPath(CRDS, { name: crdName });
    const read = (body: unknown): CustomResourceDefinition =>
      objectIn(body as CustomResourceDefinition, { name: crdName, path });
    const { bodies, serverNow } = await this.#ask({ path, read });
    return { crds: bodies, serverNow };
  }

  /**
   * Asks every API server. The slowest of their clocks counts: where one of them stamped a change and its clock is as it was,
   * the change is never taken for older than it is.
   */
  async #ask<T>(question: Question<T>): Promise<{ readonly bodies: readonly T[]; readonly serverNow: number }> {
    const answers = await Promise.all(this.#options.apiServers.map((client) => this.#askOne(client, question)));
    const serverNow = Math.min(...answers.map(({ serverTime }) => serverTime ?? this.#context.clock.now()));
    return { bodies: answers.map(({ body }) => body), serverNow };
  }

  async #askOne<T>({ transport }: ApiClient, { path, read }: Question<T>): Promise<ApiResponse<T>> {
    const { clock, emit, options, retrier, seen, signal } = this.#context;
    const startedAt = clock.monotonic();
    const tookTooLong = (): boolean => clock.monotonic() - startedAt > SLOW_ANSWER_MS;
    const ask = async (): Promise<ApiResponse<T>> => {
      const { body, ...rest } = await transport.request({ method: "GET", path, signal });
      return { ...rest, body: read(body) };
    };
    const answer = await retrier.run(ask, signal).finally(() => tookTooLong() && seen?.silent());
    const tookMs = clock.monotonic() - startedAt;
    if (tookTooLong()) {
      const { server } = transport;
      const reason = `it did not answer for ${Math.round(tookMs / 1_000)} s`;
      if (clock.monotonic() > this.#deadline) {
        throw new KsvmError(
          "NotConverged",
          `Cannot wait for late writes to land: ${server} keeps standing still: ${reason}; once it answers, ${pauseAdvice(options.settleMs)}`,
        );
      }
      emit({ type: "lagging", server, reason });
      this.#saw(`silence ${this.#changes.size}`);
    }
    return answer;
  }
}
