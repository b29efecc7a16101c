import type { Client } from "./client.ts";
import { ApiError, isConversionRefusal, isTooMuch, whose } from "./errors.ts";
import { type KubeList, type KubeObject, METADATA_LIST } from "./objects.ts";
import { retry } from "./retry.ts";

/** Pages have so many bytes, whatever the size of the objects' metadata: memory is flat, and no list holds others up. */
const PAGE_BYTES = 2 ** 18;
const FIRST_LIMIT = 20;
const MOST = 1_000;
/** How much larger a page may be than the one before, and after one that was too much. */
const GROWTH = 5;
const CAREFUL_GROWTH = 1.25;
/** Refusals in a row: a proxy that refuses every token would have the list begin again without end. */
const MAX_REFUSALS = 20;

/** Lists all objects page by page: their metadata, unless they are wanted whole. */
export class Pages {
  readonly #client: Client;
  readonly #paths: readonly string[];
  readonly #limits: { readonly signal: AbortSignal; readonly forMs?: number };
  readonly #accept: string;
  #limit: number;
  #growth = GROWTH;
  #refusals = 0;

  /**
   * @param paths of the collection, in each version that is served. One object that cannot be converted fails a whole
   * list; for the metadata, any version will do.
   * @param accept `application/json` lists whole objects
   * @param forMs milliseconds for which a failure that may pass is waited for. @default those of {@link retry}
   */
  constructor(client: Client, paths: readonly string[], signal: AbortSignal, accept = METADATA_LIST, forMs?: number) {
    this.#client = client;
    this.#paths = paths;
    this.#limits = { signal, ...(forMs === undefined ? {} : { forMs }) };
    this.#accept = accept;
    this.#limit = accept === METADATA_LIST ? FIRST_LIMIT : 1;
  }

  /**
   * One page, of so many objects at most; without a token the first one, which is consistent. After an expired token the list goes on at the same
   * place, as of now, or begins again: what was written meanwhile lies beyond the watermark, and is skipped.
   */
  async list(token?: string, most = MOST): Promise<KubeList<KubeObject>> {
    for (let continueToken = token; ; ) {
      try {
        const page = await retry(this.#client, () => this.#listOnce(continueToken, most), this.#limits);
        // A list that begins again without a token shows nothing about the next token.
        if (continueToken !== undefined) this.#refusals = 0;
        return page;
      } catch (error) {
        const isToken = whose(error) === "expired" || (error instanceof ApiError && error.status === 400);
        if (continueToken === undefined || !isToken || this.#refusals++ > MAX_REFUSALS) throw error;
        // The answer to an expired token has one that goes on from the same key.
        const next = error instanceof ApiError ? error.answer?.metadata?.continue : undefined;
        continueToken = next === undefined || next === continueToken ? undefined : next;
      }
    }
  }

  async #listOnce(continueToken: string | undefined, most: number): Promise<KubeList<KubeObject>> {
    let refusal: unknown;
    for (const path of this.#paths) {
      try {
        const query = { limit: Math.min(this.#limit, most), continue: continueToken };
        const options = { query, accept: this.#accept, signal: this.#limits.signal };
        const { body, size } = await this.#client.listWithSize<KubeObject>(path, options);
        this.#learn(body.items.length, size);
        return body;
      } catch (error) {
        if (isTooMuch(error)) {
          this.#limit = Math.max(1, Math.floor(this.#limit / 2));
          this.#growth = CAREFUL_GROWTH;
        }
        // A version that is not served any more is none to list in, where another one was refused.
        const isNext = isConversionRefusal(error) || (refusal !== undefined && whose(error) === "gone");
        if (!isNext) throw error;
        refusal ??= error;
      }
    }
    throw refusal;
  }

  #learn(items: number, bytes: number): void {
    if (items === 0) return;
    const fitting = Math.floor((PAGE_BYTES * items) / bytes);
    this.#limit = Math.max(1, Math.min(MOST, fitting, Math.ceil(this.#limit * this.#growth)));
  }
}
