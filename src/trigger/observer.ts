import { resourceNameOf } from "../api/migration.ts";
import type { Clock } from "../clock.ts";
import { isUnserved } from "../old/kube/absent.ts";
import type { ApiClient, ObjectRef } from "../old/kube/client.ts";
import { isForbidden } from "../old/kube/failure.ts";
import { projectedPages } from "../old/kube/list-projected.ts";
import { STORAGE_VERSIONS } from "../old/kube/resources.ts";
import type { ApiServers } from "../old/apiservers/api-servers.ts";
import { identityLeases } from "../old/apiservers/control-plane-objects.ts";
import { findWithin } from "../old/apiservers/find-within.ts";
import { LeaseSightings } from "../old/apiservers/lease-sightings.ts";
import { DENIAL_PATIENCE_MS } from "../old/retry/patience.ts";
import type { CrdFacts } from "./crd-facts.ts";
import { CrdIndex } from "./crd-index.ts";
import { discover } from "./discover.ts";
import {
  resourceNameOfStorageVersion,
  STORAGE_VERSION_FIELDS,
  type StorageVersion,
  type StorageVersionFacts,
  storageVersionFactsOf,
} from "../old/apiservers/storage-version-facts.ts";
import { type ServerDiscovery, type Survey, surveyOf } from "./survey.ts";

/** What an {@link Observer} needs. */
export interface ObserverOptions {
  readonly client: ApiClient;
  /** Finds the API servers that are live now. */
  readonly findApiServers: (signal: AbortSignal) => Promise<ApiServers>;
  readonly clock: Clock;
  /** Groups that are left out; the core group is the empty name. */
  readonly excludedGroups: readonly string[];
  /** As in SurveyContext. @default all of them */
  readonly onlyResources?: readonly string[] | undefined;
  /** Told of the CRDs that there are while discovery cannot be read: another client may prune one before it can. @default nobody is told */
  readonly sawCrds?: (crds: Iterable<CrdFacts>) => void;
}

/** What was seen, and the CRDs that there are. */
export interface Observation extends Survey {
  readonly crds: ReadonlyMap<string, CrdFacts>;
}

const STORAGE_VERSION_PAGE_SIZE = 500;
/**
 * So many new connections are asked where API servers cannot be asked one by one. The proof that all of them agree is
 * the migration's own and asks more.
 */
const SAMPLES = 5;
/** Finding them may wait for one that is missing; the trigger looks again later instead, in milliseconds. */
const FIND_TIMEOUT_MS = 15_000;

/** Looks at the API servers: how they encode each resource, or those of one group. */
export class Observer {
  readonly #options: ObserverOptions;
  readonly #crds: CrdIndex;
  readonly #sightings = new LeaseSightings();
  /** Since when StorageVersions may not be read, on the monotonic clock. */
  #deniedSince: number | undefined;

  constructor(options: ObserverOptions) {
    this.#options = options;
    this.#crds = new CrdIndex(options.client);
  }

  /**
   * Looks at everything.
   * @throws {ApiError | TransportError} where an API server, the CRDs or the StorageVersions cannot be read;
   *   {KsvmError} NotConverged where an API server that lives cannot be found.
   */
  async everything(signal: AbortSignal): Promise<Observation> {
    const { apiServers, servers } = await this.#discover(undefined, signal).catch(async (error: unknown) => {
      await this.#tellOf(this.#crds.all(signal));
      throw error;
    });
    // Read after discovery, so that no custom resource in it is taken for a built-in one.
    const crds = await this.#crds.all(signal);
    const storageVersions = await this.#allStorageVersions(signal);
    return this.#survey(servers, { crds, storageVersions, apiServers }, signal);
  }

  /**
   * Looks at one resource. The survey has the other resources of its group, too; of them only what discovery shows.
   * @throws as {@link everything}.
   */
  async resource(name: string, signal: AbortSignal): Promise<Observation> {
    const [resource = "", ...rest] = name.split(".");
    const group = rest.join(".");
    const { apiServers, servers } = await this.#discover(group, signal).catch(async (error: unknown) => {
      // The next look at everything may be minutes away.
      await this.#tellOf(this.#crdsOf(name, signal));
      throw error;
    });
    const crds = await this.#crdsOf(name, signal);
    const path = { name: `${group === "" ? "core" : group}.${resource}` };
    const found = await this.#storageVersion(path, signal);
    const storageVersions = new Map(found === undefined ? [] : [[name, storageVersionFactsOf(found)]]);
    const only = servers.map((server) => ({
      ...server,
      resources: server.resources.filter((entry) => resourceNameOf(entry) === name),
    }));
    return this.#survey(only, { crds, storageVersions, apiServers }, signal);
  }

  async #discover(group: string | undefined, signal: AbortSignal) {
    const { clock } = this.#options;
    const apiServers = await findWithin({ ...this.#options, timeoutMs: FIND_TIMEOUT_MS, signal });
    const options = { clock, signal, ...(group === undefined ? {} : { group }) };
    if (apiServers.mode === "each") {
      const servers = await Promise.all(apiServers.clients.map(({ transport }) => discover(transport, options)));
      return { apiServers, servers };
    }
    const servers: ServerDiscovery[] = [];
    for (let sample = 0; sample < SAMPLES; sample++) {
      const { transport } = apiServers.open();
      try {
        servers.push(await discover(transport, options));
      } finally {
        await transport.close();
      }
    }
    return { apiServers, servers };
  }

  /** The CRD of a resource, where it has one. */
  async #crdsOf(name: string, signal: AbortSignal): Promise<ReadonlyMap<string, CrdFacts>> {
    const crd = name.includes(".") ? await this.#crds.find(name, signal) : undefined;
    return new Map(crd === undefined ? [] : [[name, crd]]);
  }

  async #tellOf(read: Promise<ReadonlyMap<string, CrdFacts>>): Promise<void> {
    const crds = await read.catch(() => new Map<string, CrdFacts>());
    this.#options.sawCrds?.(crds.values());
  }

  async #survey(
    servers: readonly ServerDiscovery[],
    known: {
      readonly crds: ReadonlyMap<string, CrdFacts>;
      readonly storageVersions: ReadonlyMap<string, StorageVersionFacts>;
      readonly apiServers: ApiServers;
    },
    signal: AbortSignal,
  ): Promise<Observation> {
    const { excludedGroups, onlyResources } = this.#options;
    const { apiServers, crds, storageVersions } = known;
    const identities =
      apiServers.identities ?? (storageVersions.size === 0 ? undefined : await this.#identities(signal));
    return { ...surveyOf(servers, { crds, storageVersions, identities, excludedGroups, onlyResources }), crds };
  }

  async #identities(signal: AbortSignal): Promise<readonly string[] | undefined> {
    const { client, clock } = this.#options;
    const askedAt = clock.monotonic();
    const leases = await identityLeases(client, clock, signal);
    const look = leases && { leases, askedAt, answeredAt: clock.monotonic() };
    return look && this.#sightings.standing(look).map(({ name }) => name);
  }

  async #storageVersion(ref: ObjectRef, signal: AbortSignal): Promise<StorageVersion | undefined> {
    try {
      const found = await this.#options.client.findIfServed<StorageVersion>(STORAGE_VERSIONS, ref, { signal });
      this.#deniedSince = undefined;
      return found;
    } catch (error) {
      if (this.#isDeniedForGood(error)) {
        return undefined;
      }
      throw error;
    }
  }

  /**
   * Whether this user may not read StorageVersions, which then count as not served; who follows them says so. An API server
   * that has just started denies for a moment what it allows.
   */
  #isDeniedForGood(error: unknown): boolean {
    const now = this.#options.clock.monotonic();
    this.#deniedSince = isForbidden(error) ? (this.#deniedSince ?? now) : undefined;
    return this.#deniedSince !== undefined && now - this.#deniedSince >= DENIAL_PATIENCE_MS;
  }

  async #allStorageVersions(signal: AbortSignal): Promise<ReadonlyMap<string, StorageVersionFacts>> {
    const { client } = this.#options;
    const found = new Map<string, StorageVersionFacts>();
    const options = { limit: STORAGE_VERSION_PAGE_SIZE, projection: STORAGE_VERSION_FIELDS, signal };
    try {
      for await (const { items } of projectedPages(client.transport, STORAGE_VERSIONS, options)) {
        for (const one of items as readonly StorageVersion[]) {
          found.set(resourceNameOfStorageVersion(one.metadata.name), storageVersionFactsOf(one));
        }
      }
      this.#deniedSince = undefined;
    } catch (error) {
      // Few API servers serve it: it is alpha.
      if (!this.#isDeniedForGood(error) && !(await isUnserved(client.transport, STORAGE_VERSIONS, error, { signal }))) {
        throw error;
      }
    }
    return found;
  }
}
