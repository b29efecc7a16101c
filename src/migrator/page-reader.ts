import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { failureKindOf, isBrokenOff, isConversionRefusal, isTimeout } from "../kube/failure.ts";
import type { ListedPage } from "../kube/listed-page.ts";
import { isTokenFailure, nextTokenAfter } from "./continue-token.ts";
import type { EventSink } from "./events.ts";
import { listInAnyVersion, type VersionedResource } from "./list-in-any-version.ts";
import { PageSize } from "./page-size.ts";
import type { Retrier } from "./retrier.ts";
import { WaitingForOthers } from "./start-again.ts";

/** What a {@link PageReader} needs. */
export interface PageReaderOptions extends VersionedResource {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  /** The most objects to ask for at once. */
  readonly pageSize: number;
  readonly emit: EventSink;
  readonly signal: AbortSignal;
}

/** A connection that breaks so many times in a row in the middle of one page is taken for one that takes too long. */
const MAX_BROKEN_OFF = 2;

/** Reads the objects of a resource page by page, and asks for more or fewer by what the pages turn out to be. */
export class PageReader {
  /** Where the next page begins; `undefined` for the first page, and after the last one. */
  continueToken: string | undefined;
  /** How often the list had to begin at the first object again. */
  restarts = 0;
  readonly #options: PageReaderOptions;
  readonly #size: PageSize;
  #lastLimit = 1;

  constructor(options: PageReaderOptions) {
    this.#options = options;
    this.#size = new PageSize(options.pageSize);
  }

  /**
   * Lists one object from the first page: a conversion webhook that is down shows by that, and how large objects are.
   * @throws as {@link next}.
   */
  probe(): Promise<ListedPage> {
    return this.#read(() => 1);
  }

  /**
   * Reads the page at the continue token, and goes on to the next one.
   * @throws {KsvmError} VersionNotServed, RetryBudgetExceeded; {WaitingForOthers}.
   */
  async next(): Promise<ListedPage> {
    const page = await this.#read(() => this.#size.limit);
    this.continueToken = page.continueToken;
    return page;
  }

  async #read(limitOf: () => number): Promise<ListedPage> {
    try {
      const page = await this.#untilListed(limitOf);
      this.#size.received({ items: page.items.length, bytes: page.bytes });
      return page;
    } catch (error) {
      const request = { kind: "list", limit: this.#lastLimit, continueToken: this.continueToken } as const;
      throw error instanceof WaitingForOthers ? error.about(request) : error;
    }
  }

  async #untilListed(limitOf: () => number): Promise<ListedPage> {
    const { clock, retrier, signal } = this.#options;
    const tries = { brokenOff: 0 };
    let since: number | undefined;
    for (let attempt = 0; ; attempt++) {
      const token = this.continueToken;
      try {
        return await retrier.run(() => this.#list(limitOf(), tries), signal);
      } catch (error) {
        if (isConversionRefusal(error)) {
          // No served version can list it: only the owner of the object or of the webhook can change that.
          since ??= clock.monotonic();
          await retrier.pause(error, { attempt, since }, signal);
        } else {
          this.#afterFailure(error, token);
        }
      }
    }
  }

  async #list(limit: number, tries: { brokenOff: number }): Promise<ListedPage> {
    const { client, signal } = this.#options;
    this.#lastLimit = limit;
    try {
      return await listInAnyVersion(client, this.#options, { limit, continueToken: this.continueToken, signal });
    } catch (error) {
      tries.brokenOff = isBrokenOff(error) ? tries.brokenOff + 1 : 0;
      if (isTimeout(error) || tries.brokenOff >= MAX_BROKEN_OFF) {
        tries.brokenOff = 0;
        this.#size.tookTooLong();
      }
      throw error;
    }
  }

  #afterFailure(error: unknown, token: string | undefined): void {
    const kind = failureKindOf(error);
    if (kind === "unserved" || kind === "gone") {
      const { group, version, resource } = this.#options.resource;
      const text = `Cannot list "${resource}.${group}": version "${version}" is not served any more`;
      throw new KsvmError("VersionNotServed", text, { cause: error });
    }
    if (token === undefined || !isTokenFailure(error)) {
      throw error;
    }
    this.continueToken = nextTokenAfter(error, token);
    const startsOver = this.continueToken === undefined;
    this.restarts += startsOver ? 1 : 0;
    this.#options.emit({ type: "tokenRefused", status: error.status, startsOver });
  }
}
