import { type CustomResourceDefinition, servedVersionsOf, storageVersionOf } from "../../api/crd.ts";
import type { ApiClient } from "../kube/client.ts";
import { type ApiServers, fingerprintOf, serversOf } from "../apiservers/api-servers.ts";
import { type AskOptions, type AskResult, askAll, type Check, type CheckFailure } from "../apiservers/ask-all.ts";
import { type ConvergenceTarget, convergenceCheck, knownAtFirst, notConverged } from "../apiservers/converge.ts";
import { freezeCheck, freezeNotProven, type ProofOptions } from "../freeze/freeze-proof.ts";
import type { GuardedCrd } from "../freeze/guard.ts";
import { silentApiServer } from "../apiservers/missing-api-server.ts";
import { failureKindOf } from "../kube/failure.ts";
import { crdResourceOf } from "../../resources/request-resource.ts";
import { ownApiOf } from "./own-api.ts";
import type { RunContext } from "./run-context.ts";
import { wallOffsetOf } from "../../clock.ts";
import type { ServerRestarts } from "../apiservers/server-restarts.ts";
import { pauseAdvice, storageChangeOf } from "../apiservers/settle.ts";
import { settle } from "../apiservers/settle-wait.ts";
import { apiServersAt } from "../apiservers/settled-changes.ts";
import { StartAgain } from "../retry/start-again.ts";

/**
 * What pruning rests on besides the rewrite itself: every API server has the freeze in force, writes the storage version,
 * and no write of an old one is under way.
 */
export class FreezeEvidence {
  readonly #context: RunContext;
  readonly #proof: ProofOptions;
  readonly #restarts: ServerRestarts | undefined;
  readonly #onDifference: () => Promise<void>;
  /** Before the freeze, on the monotonic clock. */
  readonly #begunAt: number;
  #atStart = "";
  #ownApi = "";
  /** The CRD as every API server has to know it: from then on the storage version does not change. */
  #frozen: CustomResourceDefinition["metadata"] | undefined;
  /** How many API servers had come and gone before the first look. */
  #arrivals: number | undefined;
  #wallOffset: number | undefined;

  /**
   * @param restarts where a restart of an API server voids what the run rests on, those that all its attempts have seen
   * @param onDifference told at once where an API server shows another storage version, once for each question and whatever
   *   comes of it: it may have written that one. The question waits for it, and fails with it.
   */
  constructor(
    context: RunContext,
    guarded: GuardedCrd,
    restarts: ServerRestarts | undefined,
    onDifference: () => Promise<void> = async () => undefined,
  ) {
    this.#onDifference = onDifference;
    this.#context = context;
    this.#proof = { ...guarded, signal: context.signal };
    this.#restarts = restarts;
    this.#begunAt = context.clock.monotonic();
  }

  /**
   * What the evidence is of, to be compared with that of a later attempt: the API servers, and the APIServices of the CRD. One that handed
   * its group to an aggregated API server in between may have had that answer the lists. Where a restart matters, also how many API
   * servers had come and gone: one that joined and left between two attempts may have encrypted otherwise.
   */
  get restsOn(): string {
    const came = this.#restarts === undefined ? "" : ` arrivals=${this.#arrivals ?? 0}`;
    return `${this.#atStart} ${this.#ownApi}${came}`;
  }

  /**
   * Proves the freeze on every API server that lives. From then on the storage version cannot change unseen.
   * @param frozen the CRD as it is, at the beginning of an attempt: an API server that knows an older one is noted before it follows
   * @returns whether one of them did not answer in that time
   * @throws {MissingApiServer} where one that may live cannot be asked, or one that was found does not answer.
   * @throws {KsvmError} FreezeNotProven or NotConverged, naming the API server.
   */
  async prove(
    frozen?: CustomResourceDefinition,
  ): Promise<{ readonly apiServers: ApiServers; readonly silent: boolean }> {
    const { arrivals, client, clock, emit, findApiServers, options, seen, signal } = this.#context;
    this.#wallOffset = wallOffsetOf(clock);
    this.#arrivals ??= arrivals.count;
    const apiServers = await findApiServers(signal);
    const stuck = this.#stuck();
    const ask: AskOptions = {
      clock,
      signal,
      spreadMs: 0,
      timeoutMs: options.proofTimeoutMs,
      onSilence: () => seen?.silent(),
      onFailure: (server, failure) => {
        stuck(server, failure);
        if (failure.silent) {
          emit({ type: "lagging", server, reason: failure.reason });
        }
      },
      errorOf: (server, reason, isSilent) =>
        (isSilent ? silentApiServer(apiServers, server, reason) : undefined) ??
        freezeNotProven(this.#proof, server, reason),
    };
    const look = frozen === undefined ? async () => undefined : this.#firstLook(frozen);
    if (frozen !== undefined && apiServers.mode === "sampled") {
      await askAll(apiServers, look, ask);
    }
    // Where they can only be sampled, those that were told apart have to show it for now, or else one; the samples follow
    // with those of convergence.
    const proven: ApiServers = { mode: "each", clients: apiServers.clients ?? [client] };
    const freeze = freezeCheck(this.#proof);
    const check: Check = async (asked) => (await look(asked)) ?? freeze(asked);
    const { silent } = await askAll(this.#withOwn(proven), check, ask);
    emit({ type: "proven", apiServers: serversOf(apiServers) });
    return { apiServers, silent: silent || apiServers.silent === true };
  }

  #firstLook(crd: CustomResourceDefinition): Check {
    const { seen, signal } = this.#context;
    const onLag = (): void => seen?.noting(crd.metadata.name).onLag();
    let told: Promise<void> | undefined;
    return knownAtFirst(targetOf(crd), { onLag, onDifference: () => (told ??= this.#onDifference()) }, signal);
  }

  /**
   * Waits until every API server shows the storage version of `crd`, and until late writes of an old one have landed.
   * @throws {KsvmError} NotConverged, naming the API server that lags; VersionNotServed where an aggregated one serves the CRD's group.
   */
  async settle(apiServers: ApiServers, silent: boolean, crd: CustomResourceDefinition): Promise<void> {
    const { emit, options, seen } = this.#context;
    this.#atStart = await this.#fingerprint(apiServers);
    this.#ownApi = await ownApiOf(this.#context, crd);
    this.#frozen = crd.metadata;
    const result = await this.#converge(apiServers, crd, options.settleMs);
    // Another run, or the trigger, may have seen one stand still or lag since API servers were looked for.
    const wereSilent = seen?.wereSilentWithin(options.settleMs, options.shutdownDelayMs) === true;
    // They have seen the freeze, which this attempt wrote.
    seen?.followed(crd.metadata.name, this.#begunAt);
    emit({ type: "converged", apiServers: serversOf(apiServers) });
    await this.#untilSettled(apiServers, crd, silent || wereSilent || result.lagged || result.silent);
  }

  /** A forced run may come again and again, also of a CRD that is clean: it waits for a change once in a process. */
  async #untilSettled(apiServers: ApiServers, crd: CustomResourceDefinition, lagged: boolean): Promise<void> {
    const { arrivals, budget, client, options } = this.#context;
    const { key } = storageChangeOf(crd);
    const servers = apiServersAt(apiServers, arrivals.count);
    const earlier = this.#restarts === undefined ? undefined : this.#context.settled;
    const isSettled = earlier?.has(key, servers) === true;
    await settle(this.#context, {
      settledChange: isSettled ? key : undefined,
      crdName: crd.metadata.name,
      apiServers: apiServers.clients ?? [client],
      // The one that was waited for with that change is the same.
      newestJoin: isSettled ? undefined : apiServers.newestJoin,
      lagged,
      wallOffset: this.#wallOffset,
      freezeMs: options.maxFreezeIdleMs - (budget?.frozenMs ?? 0),
    });
    earlier?.note(key, servers);
  }

  /**
   * Proves and checks all of it once more, right before pruning.
   * One that is silent for a while, or whose requests fail, is waited for, and no more: a late write of an old version was
   * under way on it when the storage version changed, and settle() saw it answer all the time until such a write must have
   * ended.
   *
   * @throws {StartAgain} where an API server fell behind or joined in between: it may have written an old version; and where an APIService changed, so
   *   that a list may have shown objects of another API server.
   */
  async repeat(readCrd: () => Promise<CustomResourceDefinition>): Promise<void> {
    if (this.#restarts !== undefined) {
      await this.#context.arrivals.catchUp(this.#context);
    }
    this.#assertNoneCame();
    const { apiServers } = await this.prove();
    const crd = await readCrd();
    const { lagged, failed } = await this.#converge(apiServers, crd, 0);
    if ((await ownApiOf(this.#context, crd)) !== this.#ownApi) {
      throw this.#startAgain("an APIService of its group changed");
    }
    const fingerprint = await this.#fingerprint(apiServers);
    // Requests that failed alone say nothing about the storage version.
    const isBehind = lagged && failed === undefined;
    if (isBehind || fingerprint !== this.#atStart) {
      const isSameSet = this.#atStart.replace(/ restarts=\d+$/u, "") === fingerprintOf(apiServers);
      const changed = isSameSet ? "an API server restarted" : "the set of API servers changed";
      throw this.#startAgain(isBehind ? "an API server fell behind" : changed);
    }
    // What the watch has told since. The rest is not waited for: the prune is to follow on the proof.
    this.#assertNoneCame();
  }

  /** Where a restart matters, so does an API server that joined and left: it may have encrypted otherwise. */
  #assertNoneCame(): void {
    const { arrivals } = this.#context;
    if (this.#restarts !== undefined && arrivals.count !== this.#arrivals) {
      throw this.#startAgain(arrivals.newest);
    }
  }

  #startAgain(what: string): StartAgain {
    const advice = pauseAdvice(this.#context.options.settleMs);
    const text = `Cannot prune storedVersions of "${this.#proof.crdName}": ${what} during the run; ${advice}`;
    return new StartAgain("NotConverged", text);
  }

  async #fingerprint(apiServers: ApiServers): Promise<string> {
    const restarts = (await this.#restarts?.look(this.#context, apiServers)) ?? 0;
    return restarts === 0 ? fingerprintOf(apiServers) : `${fingerprintOf(apiServers)} restarts=${restarts}`;
  }

  /**
   * Counts the failed requests of one question as time that a freeze is held without progress. It is not held any longer for
   * a failure that may pass, as an attempt is broken off for one elsewhere. An API server that does not answer at all, or that
   * answers and lags, has the time limit of the question, and an error of its own.
   */
  #stuck(): (server: string, failure: CheckFailure) => void {
    const { clock, retrier } = this.#context;
    const since = new Map<string, number>();
    return (server, { cause, silent }) => {
      const begun = since.get(server) ?? clock.monotonic();
      since.set(server, begun);
      if (!silent && failureKindOf(cause) === "transient") {
        retrier.stuck(cause, begun);
      }
    };
  }

  /**
   * With the one that the run reads and writes through. It may be none of those that were found: one that began to end before this
   * process looked at the identity Leases takes requests for a while.
   */
  #withOwn(apiServers: ApiServers): ApiServers {
    const { client } = this.#context;
    const isOwn = ({ transport }: ApiClient): boolean => transport.server === client.transport.server;
    if (apiServers.mode !== "each" || apiServers.clients.some(isOwn)) {
      return apiServers;
    }
    return { ...apiServers, clients: [...apiServers.clients, client] };
  }

  async #converge(apiServers: ApiServers, crd: CustomResourceDefinition, spreadMs: number): Promise<AskResult> {
    const { clock, emit, options, seen, signal } = this.#context;
    const target = targetOf(crd, this.#frozen);
    const check = convergenceCheck(target, signal);
    let told: Promise<void> | undefined;
    let isTold = false;
    const converged: Check = async (client) => {
      const failure = await check(client);
      if (isTold || failure === undefined || failure.silent || failure.cause !== undefined) {
        return failure;
      }
      // At once: the run may end before the next answer.
      seen?.noting(crd.metadata.name).onLag();
      told ??= this.#onDifference();
      await told;
      isTold = true;
      // That may have taken long: what the API server showed before is no reason to give it up.
      return check(client);
    };
    const proven = freezeCheck(this.#proof);
    const stuck = this.#stuck();
    const both: Check = async (client) => (await proven(client)) ?? (await converged(client));
    const result = await askAll(this.#withOwn(apiServers), apiServers.mode === "each" ? converged : both, {
      clock,
      signal,
      spreadMs,
      // The samples themselves take spreadMs.
      timeoutMs: options.convergenceTimeoutMs + spreadMs,
      ...seen?.noting(crd.metadata.name),
      onFailure: (server, failure) => {
        emit({ type: "lagging", server, reason: failure.reason });
        stuck(server, failure);
      },
      errorOf: (server, reason, isSilent) =>
        (isSilent ? silentApiServer(apiServers, server, reason) : undefined) ??
        notConverged(target, options, { server, reason }),
    });
    return told === undefined ? result : { lagged: true, silent: result.silent };
  }
}

function targetOf(crd: CustomResourceDefinition, known = crd.metadata): ConvergenceTarget {
  const { group, names } = crd.spec;
  const storageVersion = storageVersionOf(crd);
  return {
    group,
    resource: names.plural,
    kind: names.kind,
    storageVersion,
    requestVersion: crdResourceOf(crd).version,
    isStorageServed: servedVersionsOf(crd).includes(storageVersion),
    crd: known,
  };
}
