import { resourceNameOf } from "../../api/migration.ts";
import type { CustomResourceDefinition } from "../../api/crd.ts";
import { wallOffsetOf } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { resourcesOf } from "../kube/discovery.ts";
import { STORAGE_VERSIONS } from "../kube/resources.ts";
import { unlessForbidden } from "../kube/unless-forbidden.ts";
import { type ApiServers, fingerprintOf, serversOf } from "../apiservers/api-servers.ts";
import { type EncryptionFound, showsProcesses } from "../apiservers/encryption-evidence.ts";
import { type AskResult, askAll, type Check, checkFailureOf } from "../apiservers/ask-all.ts";
import type { ServedResource } from "../../resources/migratable.ts";
import { leasesNow } from "../apiservers/leases-now.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import { followingCheck, type KnownCrd } from "../apiservers/converge.ts";
import { type CrdsToFollow, crdsToFollow } from "../apiservers/followed-crds.ts";
import { silentApiServer } from "../apiservers/missing-api-server.ts";
import { findCrd } from "../../resources/read-crd.ts";
import { ownApiOf, ownStorageOf } from "./own-api.ts";
import { changeBetween, changedDuringRun, type Foundation, specKeyIn } from "./foundation.ts";
import type { RunContext } from "./run-context.ts";
import type { ServerRestarts } from "../apiservers/server-restarts.ts";
import { lateWritesSince } from "../apiservers/late-writes-since.ts";
import { settle } from "../apiservers/settle-wait.ts";
import { apiServersAt } from "../apiservers/settled-changes.ts";
import type { StartAgain } from "../retry/start-again.ts";
import {
  disagreementWith,
  type StorageVersion,
  type StorageVersionFacts,
  storageVersionFactsOf,
  withoutEntriesOf,
} from "../apiservers/storage-version-facts.ts";

/** What a {@link BuiltInEvidence} is of. */
export interface BuiltInEvidenceOptions {
  readonly resource: ServedResource;
  /** The CRD of a custom resource that is only rewritten. */
  readonly crdName?: string | undefined;
  /** Those that all attempts of the run have seen. */
  readonly restarts: ServerRestarts;
}

interface Looked extends Pick<AskResult, "lagged" | "silent"> {
  readonly apiServers: ApiServers;
  readonly encryption: EncryptionFound | undefined;
  readonly following: CrdsToFollow;
  readonly foundation: Foundation;
}

const PACE = { minMs: 250, maxMs: 5_000 };

/**
 * What the word "migrated" rests on for a resource that is not frozen: every API server that lives shows one and the same
 * storageVersionHash, the StorageVersion says so too where it is served, and no write of an older version is under way;
 * and none of that changed until the end.
 */
export class BuiltInEvidence {
  readonly #context: RunContext;
  readonly #resource: ServedResource;
  readonly #crdName: string | undefined;
  readonly #restarts: ServerRestarts;
  #atStart: Foundation | undefined;
  /** The CRD at the start, which every API server has to know: the hash shows nothing where the storage version went there and back. */
  #crd: CustomResourceDefinition | undefined;
  #following: CrdsToFollow | undefined;
  #apiServers: ApiServers | undefined;

  constructor(context: RunContext, { crdName, resource, restarts }: BuiltInEvidenceOptions) {
    this.#context = context;
    this.#resource = resource;
    this.#crdName = crdName;
    this.#restarts = restarts;
  }

  /** The API servers that {@link prove} found. */
  get apiServers(): ApiServers | undefined {
    return this.#apiServers;
  }

  /**
   * Waits until all API servers agree and late writes have landed. To be done before the first list.
   * @returns what the run rests on from then on
   * @throws {KsvmError} NotConverged, naming the API server that disagrees.
   */
  async prove(): Promise<Foundation> {
    const { arrivals, client, clock, emit, options } = this.#context;
    const wallOffset = wallOffsetOf(clock);
    this.#crd = await this.#findCrd();
    const { apiServers, encryption, following, foundation, lagged, silent } = await this.#look(options.settleMs);
    const concern = encryption === undefined ? {} : { concern: "key" as const };
    emit({ type: "converged", apiServers: serversOf(apiServers), ...concern });
    await settle(this.#context, {
      resource: resourceNameOf(this.#resource),
      apiServers: apiServers.clients ?? [client],
      lagged: lagged || silent || following.from === undefined,
      wallOffset,
      ...concern,
      // The list that a watch begins with shows all that had joined, and the watch all others: no stamp is needed.
      earlier: lateWritesSince(encryption?.since, { arrivals, now: clock.monotonic(), ...options }, following.from),
      ...(this.#crdName === undefined ? {} : { crdName: this.#crdName }),
    });
    this.#assertNoneCame(foundation);
    arrivals.settled(foundation.arrivals);
    following.settled(clock.monotonic());
    if (encryption !== undefined) {
      this.#context.encryption?.settled(encryption.fingerprint);
    }
    this.#atStart = foundation;
    this.#apiServers = apiServers;
    return foundation;
  }

  /**
   * Looks at all of it once more, right before the resource is called migrated. Where `onRested` is given, the caller waits until it is
   * known which API servers came and went.
   * @throws {StartAgain} where an API server joined, left, fell behind or encodes otherwise: it may have written an
   *   older version in between; as {@link prove}.
   */
  async repeat(): Promise<void> {
    const { arrivals, onRested } = this.#context;
    const { foundation, lagged } = await this.#look(0);
    const change = lagged ? "an API server fell behind" : changeBetween(this.#atStart, foundation);
    if (change !== undefined) {
      throw this.#startAgain(change);
    }
    if (onRested !== undefined) {
      return onRested({ arrivals, count: foundation.arrivals });
    }
    // One that joins during the look may be gone again before it is asked.
    await arrivals.catchUp(this.#context);
    this.#assertNoneCame(foundation);
  }

  /** One that came while late writes were waited for is noticed before everything is rewritten. That alone is no proof yet. */
  #assertNoneCame({ arrivals }: Foundation): void {
    const { count, newest } = this.#context.arrivals;
    if (count !== arrivals) {
      throw this.#startAgain(newest);
    }
  }

  #startAgain(change: string): StartAgain {
    return changedDuringRun(resourceNameOf(this.#resource), change);
  }

  async #look(spreadMs: number): Promise<Looked> {
    const { apiServers, arrivals, encryption } = await this.#begin();
    const following = (this.#following ??= await crdsToFollow(
      this.#context,
      this.#crd,
      apiServersAt(apiServers, arrivals),
    ));
    const { hash, lagged, silent } = await this.#agreedHash(apiServers, following.crd, spreadMs);
    this.#context.seen?.followed(resourceNameOf(this.#resource));
    const storageVersion = await this.#agreedStorageVersion(hash, apiServers);
    const [leases, crd] = [await this.#identityLeases(), await this.#crdState()];
    // What the same processes show at the end, they have shown all the time. /metrics of an API server are large: read once, where that tells.
    const isTold = encryption !== undefined && showsProcesses(encryption);
    const restarts = isTold ? 0 : await this.#restarts.look(this.#context, apiServers);
    const shown = { hash, storageVersion, ...crd, encryption: encryption?.agreement ?? "" };
    const came = { arrivals, newestArrival: this.#context.arrivals.newest };
    const foundation = { apiServers: fingerprintOf(apiServers), leases, restarts, ...came, ...shown };
    return { lagged, silent: silent || apiServers.silent === true, apiServers, encryption, following, foundation };
  }

  /** What came and went is counted before the API servers are looked for: none of them is missed in between. */
  async #begin(): Promise<Pick<Looked, "apiServers" | "encryption"> & Pick<Foundation, "arrivals">> {
    const { arrivals, encryption, findApiServers, signal } = this.#context;
    if (encryption === undefined) {
      const { count } = arrivals;
      return { apiServers: await findApiServers(signal), arrivals: count, encryption };
    }
    const isRepeated = this.#atStart !== undefined;
    const found = await encryption.look(this.#context, `"${resourceNameOf(this.#resource)}"`, { isRepeated });
    return { apiServers: found.apiServers, arrivals: found.arrivals, encryption: found };
  }

  /** Read also where the API servers are named by the user: it tells whether one of those restarted. */
  async #identityLeases(): Promise<string> {
    const { retrier, signal } = this.#context;
    const leases = await retrier.run(() => leasesNow(this.#context), signal);
    const texts = (leases ?? []).map(({ name, uid }) => `${name}@${uid}`);
    return texts.toSorted((a, b) => a.localeCompare(b)).join(" ");
  }

  /**
   * Waits until every API server shows one and the same hash. Which of two is the new one cannot be told; and one server
   * that was asked before an upgrade of all of them and another one that was asked after it have not shown the same.
   */
  async #agreedHash(
    apiServers: ApiServers,
    crd: KnownCrd | undefined,
    spreadMs: number,
  ): Promise<Pick<AskResult, "lagged" | "silent"> & { readonly hash: string }> {
    const { client, clock, emit, options, retrier, seen, signal } = this.#context;
    const name = resourceNameOf(this.#resource);
    const ask = { clock, signal, spreadMs, timeoutMs: options.convergenceTimeoutMs + spreadMs, ...seen?.noting(name) };
    const deadline = clock.monotonic() + ask.timeoutMs;
    const pace = new LoopPace({ clock, ...PACE });
    let [lagged, silent] = [false, false];
    await retrier.run(() => this.#hashOf(client), signal);
    for (;;) {
      await pace.turn(signal);
      const shown = new Set<string>();
      const result = await askAll(apiServers, followingCheck(crd, this.#isAsTheFirst(shown), signal), {
        ...ask,
        onFailure: (server, { reason }) => emit({ type: "lagging", server, reason }),
        errorOf: (server, reason, isSilent) =>
          (isSilent ? silentApiServer(apiServers, server, reason) : undefined) ??
          new KsvmError("NotConverged", `Cannot migrate "${name}": ${server} disagrees: ${reason}`),
      });
      lagged ||= result.lagged;
      silent ||= result.silent || seen?.wereSilentWithin(options.settleMs, options.shutdownDelayMs) === true;
      if (shown.size <= 1) {
        return { hash: [...shown].join(), lagged, silent };
      }
      if (clock.monotonic() >= deadline) {
        const hashes = [...shown].map((one) => `"${one}"`).join(" and ");
        throw new KsvmError("NotConverged", `Cannot migrate "${name}": the API servers show ${hashes} in turn`);
      }
      lagged = true;
      ask.onLag?.();
    }
  }

  /** Whether an API server shows the hash that the one of the kubeconfig shows at the same time. */
  #isAsTheFirst(shown: Set<string>): Check {
    const { client, signal } = this.#context;
    return async (asked) => {
      try {
        const [expected, found] = [await this.#hashOf(client), await this.#hashOf(asked)];
        if (found === expected) {
          shown.add(found);
          return undefined;
        }
        const reason = `it shows storageVersionHash "${found}", and ${client.transport.server} "${expected}"`;
        return { reason, silent: false };
      } catch (error) {
        return checkFailureOf(error, signal);
      }
    };
  }

  async #hashOf({ transport }: ApiClient): Promise<string> {
    const resources = await resourcesOf(transport, this.#resource, { signal: this.#context.signal });
    return resources.find(({ name }) => name === this.#resource.resource)?.storageVersionHash ?? "";
  }

  /** Waits until the StorageVersion, where there is one, says what discovery shows. */
  async #agreedStorageVersion(hash: string, { identities, ignored = [] }: ApiServers): Promise<string> {
    const { clock, emit, options, signal } = this.#context;
    const deadline = clock.monotonic() + options.convergenceTimeoutMs;
    const pace = new LoopPace({ clock, ...PACE });
    for (;;) {
      await pace.turn(signal);
      const found = await this.#storageVersion();
      const facts = found && withoutEntriesOf(found, ignored);
      const reason = facts && disagreementWith(facts, { hash, identities, kind: this.#resource.kind });
      if (reason === undefined) {
        return facts?.key ?? "";
      }
      const name = resourceNameOf(this.#resource);
      if (clock.monotonic() >= deadline) {
        throw new KsvmError("NotConverged", `Cannot migrate "${name}": the API servers do not agree: ${reason}`);
      }
      emit({ type: "lagging", server: "every API server to agree", reason });
    }
  }

  /** `undefined` where the API is not served, has nothing on this resource, or this user may not read it. */
  async #storageVersion(): Promise<StorageVersionFacts | undefined> {
    const { client, retrier, signal } = this.#context;
    const { group, resource } = this.#resource;
    const ref = { name: `${group === "" ? "core" : group}.${resource}` };
    const read = () => client.findIfServed<StorageVersion>(STORAGE_VERSIONS, ref, { signal });
    const found = await retrier.run(() => unlessForbidden(read), signal);
    return found && storageVersionFactsOf(found);
  }

  async #findCrd(): Promise<CustomResourceDefinition | undefined> {
    const [{ client, retrier, signal }, name] = [this.#context, this.#crdName];
    return name === undefined ? undefined : retrier.run(() => findCrd(client, name, { signal }), signal);
  }

  async #crdState(): Promise<Pick<Foundation, "crd" | "ownApi">> {
    if (this.#crdName === undefined) {
      const { encryption } = this.#context;
      return { crd: "", ownApi: encryption === undefined ? "" : await ownStorageOf(this.#context, this.#resource) };
    }
    const crd = await this.#findCrd();
    // Else an API server that knows the CRD of the beginning may still be on its way through a storage version that came and went.
    if (specKeyIn(crd?.metadata) !== specKeyIn(this.#crd?.metadata)) throw this.#startAgain("the CRD changed");
    return { crd: specKeyIn(crd?.metadata), ownApi: crd === undefined ? "" : await ownApiOf(this.#context, crd) };
  }
}
