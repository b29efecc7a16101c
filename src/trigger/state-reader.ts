import type { Logger } from "pino";
import { parseStorageState } from "../api/parse-storage-state.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { listProjected } from "../old/kube/list-projected.ts";
import { STORAGE_STATES } from "../old/kube/resources.ts";
import { ToldOnce } from "../told-once.ts";
import type { StateFacts } from "./next-status.ts";
import { STATE_FIELDS, stateFactsOf } from "./state-facts.ts";

/** What a {@link StateReader} works with. */
export interface StateReaderOptions {
  readonly client: ApiClient;
  readonly logger: Logger;
}

const STATE_PAGE_SIZE = 100;

/** Reads StorageStates, and says of each once what cannot be read of it. */
export class StateReader {
  readonly #options: StateReaderOptions;
  readonly #told = new ToldOnce();

  constructor(options: StateReaderOptions) {
    this.#options = options;
  }

  /**
   * Every StorageState that can be read, by name.
   * @throws {ApiError | TransportError | KsvmError} where they cannot be listed.
   */
  async all(signal: AbortSignal): Promise<ReadonlyMap<string, StateFacts>> {
    const states = new Map<string, StateFacts>();
    const uids = new Set<string>();
    const options = { limit: STATE_PAGE_SIZE, projection: STATE_FIELDS, signal };
    const { items } = await listProjected(this.#options.client.transport, STORAGE_STATES, options);
    for (const value of items) {
      const parsed = parseStorageState(value);
      uids.add(parsed.uid);
      const facts = this.#factsOf(parsed);
      if (parsed.object !== undefined && facts !== undefined) {
        states.set(parsed.object.metadata.name, facts);
      }
    }
    this.#told.keepOnly(uids);
    return states;
  }

  /**
   * One StorageState; `undefined` where there is none. A status that cannot be read counts as never written, and is written again.
   * @throws {ApiError | TransportError} where it cannot be read.
   */
  async one(name: string, signal: AbortSignal): Promise<StateFacts | undefined> {
    const found = await this.#options.client.find<unknown>(STORAGE_STATES, { name }, { signal });
    return found === undefined ? undefined : this.#factsOf(parseStorageState(found));
  }

  #factsOf({ object, ignored, uid, unreadable }: ReturnType<typeof parseStorageState>): StateFacts | undefined {
    const problem = unreadable?.problem ?? ignored.join(" ");
    if (problem === "") {
      this.#told.forget(uid);
    } else if (this.#told.isNews(uid, problem)) {
      this.#options.logger.warn(
        { storageState: object?.metadata.name ?? unreadable?.name, problem },
        "Cannot read a StorageState as a whole",
      );
    }
    return object === undefined ? undefined : stateFactsOf(object);
  }
}
