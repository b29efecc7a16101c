import type { Clock } from "../../clock.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import type { ApiClient } from "../../kube/client.ts";
import { isBrokenOff, isConversionRefusal, isTimeout } from "../../kube/failure.ts";
import type { ListedPage } from "../../kube/listed-page.ts";
import { collectionPath } from "../../kube/resources.ts";
import { TokenTrail } from "../../kube/token-trail.ts";
import { backoffMs } from "../../retry/backoff.ts";
import { isTokenFailure, nextTokenAfter } from "./continue-token.ts";
import type { RewriteEvent } from "./events.ts";
import { listInAnyVersion, type VersionedResource } from "./list-in-any-version.ts";
import { PageSize } from "./page-size.ts";
import type { Retrier } from "../../retry/retrier.ts";
import { WaitingForOthers } from "../../retry/start-again.ts";

/** What a {@link PageReader} needs. */
export interface PageReaderOptions extends VersionedResource {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  /** The most objects to ask for at once. */
  readonly pageSize: number;
  /** Whether the API versions that managedFields name are read as well. @default false */
  readonly fieldVersions?: boolean | undefined;
  readonly emit: (event: RewriteEvent) => void;
  readonly signal: AbortSignal;
}

/** A connection that breaks so many times in a row in the middle of one page is taken for one that takes too long. */
const MAX_BROKEN_OFF = 2;
/** So often a continue token may be refused in a row without the list getting further than it ever was. */
const MAX_TOKEN_REFUSALS = 5;

/** Reads the objects of a resource page by page, and asks for more or fewer by what the pages turn out to be. */
export class PageReader {
  /** Where the next page begins; `undefined` for the first page, and after the last one. */
  continueToken: string | undefined;
  /** How often the list had to begin at the first object again. */
  restarts = 0;
  readonly #options: PageReaderOptions;
  readonly #size: PageSize;
  readonly #trail: TokenTrail;
  #lastLimit = 1;
  /** Objects of the pages since the list last began at the first object. */
  #listed = 0;
  #furthest = 0;
  #tokenRefusals = 0;

  constructor(options: PageReaderOptions) {
    this.#options = options;
    this.#size = new PageSize(options.pageSize);
    this.#trail = new TokenTrail(collectionPath(options.resource));
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
   * @throws {KsvmError} VersionNotServed, RetryBudgetExceeded; ApiRequestFailed where a token leads nowhere or in a circle;
   *   {WaitingForOthers}.
   */
  async next(): Promise<ListedPage> {
    const page = await this.#read(() => this.#size.limit);
    const continueToken = this.#trail.next(page.continueToken);
    this.#listed += page.items.length;
    if (this.#listed > this.#furthest) {
      this.#furthest = this.#listed;
      this.#tokenRefusals = 0;
    }
    this.continueToken = continueToken;
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
          await this.#afterFailure(error, token);
        }
      }
    }
  }

  async #list(limit: number, tries: { brokenOff: number }): Promise<ListedPage> {
    const { client, fieldVersions, signal } = this.#options;
    this.#lastLimit = limit;
    try {
      return await listInAnyVersion(client, this.#options, {
        fieldVersions,
        limit,
        continueToken: this.continueToken,
        signal,
      });
    } catch (error) {
      tries.brokenOff = isBrokenOff(error) ? tries.brokenOff + 1 : 0;
      if (isTimeout(error) || tries.brokenOff >= MAX_BROKEN_OFF) {
        tries.brokenOff = 0;
        this.#size.tookTooLong();
      }
      throw error;
    }
  }

  async #afterFailure(error: unknown, token: string | undefined): Promise<void> {
    if (token === undefined || !isTokenFailure(error)) {
      throw error;
    }
    await this.#afterTokenRefusal(error);
    this.continueToken = nextTokenAfter(error, token);
    const startsOver = this.continueToken === undefined;
    if (startsOver) {
      this.restarts++;
      this.#trail.startOver();
      this.#listed = 0;
    }
    this.#options.emit({ type: "tokenRefused", status: error.status, startsOver });
  }

  /** Once is how a token ends; what refuses every token, such as a proxy, would have the list begin again without end. */
  async #afterTokenRefusal(error: unknown): Promise<void> {
    const { clock, resource, retrier, signal } = this.#options;
    const refusals = this.#tokenRefusals++;
    if (refusals >= MAX_TOKEN_REFUSALS) {
      const text =
        `Cannot list "${resource.resource}.${resource.group}" to its end: its continue tokens are refused, ` +
        `${refusals + 1} times in a row: ${messageOf(error)}`;
      throw new KsvmError("ApiRequestFailed", text, { cause: error });
    }
    if (refusals > 0) {
      await clock.sleep(backoffMs(refusals, retrier.random()), signal);
    }
  }
}
