import type { Clock } from "../../../clock.ts";
import { KsvmError, messageOf } from "../../../errors.ts";
import type { ApiClient } from "../../kube/client.ts";
import { isBrokenOff, isConversionRefusal, isTimeout } from "../../kube/failure.ts";
import type { ListedPage } from "../../kube/listed-page.ts";
import { collectionPath } from "../../kube/resources.ts";
import { TokenTrail } from "../../kube/token-trail.ts";
import { backoffMs } from "../../retry/backoff.ts";
import type { ResumePoint } from "./checkpoint.ts";
import { isTokenFailure, nextTokenAfter } from "./continue-token.ts";
import {
  confirms,
  type Following,
  followingOf,
  missingBehind,
  missingByItself,
  objectsLeftOut,
} from "./counted-objects.ts";
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
/** So often a page is read that has fewer objects than the API server counts. */
const MAX_SHORT_READS = 3;

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
  /** Behind the object that the last probe listed. */
  #behindProbe: Following | undefined;
  /** Behind the last page. */
  #following: Following | undefined;

  constructor(options: PageReaderOptions) {
    this.#options = options;
    this.#size = new PageSize(options.pageSize);
    this.#trail = new TokenTrail(collectionPath(options.resource));
  }

  /**
   * Lists one object from the first page: a conversion webhook that is down shows by that, and how large objects are.
   * @throws as {@link next}.
   */
  async probe(): Promise<ListedPage> {
    const page = await this.#readWhole(() => 1);
    this.#behindProbe = followingOf(page);
    return page;
  }

  /** Has the next page begin where an earlier run stood. */
  goOnAt({ continueToken, following }: Pick<ResumePoint, "continueToken" | "following">): void {
    this.continueToken = continueToken;
    this.#following =
      following === undefined || continueToken === undefined ? undefined : { token: continueToken, ...following };
  }

  /**
   * Reads the page at the continue token, and goes on to the next one.
   * @throws {KsvmError} VersionNotServed, RetryBudgetExceeded; ApiRequestFailed where a token leads nowhere or in a circle; Forbidden where
   *   objects are missing; {WaitingForOthers}.
   */
  async next(): Promise<ListedPage> {
    const page = await this.#readWhole(() => this.#size.limit);
    if (this.continueToken === undefined) {
      await this.#compareWithProbe(page);
    }
    const continueToken = this.#trail.next(page.continueToken);
    this.#listed += page.items.length;
    if (this.#listed > this.#furthest) {
      this.#furthest = this.#listed;
      this.#tokenRefusals = 0;
    }
    this.continueToken = continueToken;
    this.#following = followingOf(page);
    return page;
  }

  /** Reads a page, and once more where it has fewer objects than the API server counts: one odd answer ends no run. */
  async #readWhole(limitOf: () => number): Promise<ListedPage> {
    for (let reads = 1; ; reads++) {
      const page = await this.#read(limitOf);
      const missing = await this.#missingFrom(page);
      if (missing === 0) {
        return page;
      }
      if (reads === MAX_SHORT_READS) {
        throw objectsLeftOut(this.#options.resource, missing);
      }
    }
  }

  async #missingFrom(page: ListedPage): Promise<number> {
    const asked = { limit: this.#lastLimit, token: this.continueToken };
    const following = this.#following;
    const missing = missingBehind(following, page, asked);
    return following === undefined || missing === 0 || (await this.#isDenied(following))
      ? missingByItself(page, asked)
      : missing;
  }

  /** Whether the API server, asked for one object at the token, counts otherwise than on the page before. */
  async #isDenied(following: Following): Promise<boolean> {
    const beside = this.#beside(following);
    const page = await beside.reader.#read(() => 1);
    return !beside.isRefused() && !confirms(following, page);
  }

  /**
   * Where the first page is the whole list, and has fewer objects than the probe counted, they were deleted since, or are left out: what
   * follows the object of the probe shows which, in the state of the probe.
   */
  async #compareWithProbe({ continueToken, items }: ListedPage): Promise<void> {
    for (let tries = 0; tries < MAX_SHORT_READS; tries++) {
      const following = this.#behindProbe;
      const isShort = following !== undefined && continueToken === undefined && items.length <= following.count;
      if (!isShort || (await this.#isReadToEnd(following))) {
        return;
      }
      await this.probe();
    }
  }

  /** @returns whether every object behind a token was listed, as they were then; `false` where the token is too old */
  async #isReadToEnd(following: Following): Promise<boolean> {
    const { isRefused, reader } = this.#beside(following);
    do {
      await reader.next();
    } while (!isRefused() && reader.continueToken !== undefined);
    return !isRefused();
  }

  /** Reads the list at a token, and leaves this reader where it is. */
  #beside(following: Following): { readonly reader: PageReader; readonly isRefused: () => boolean } {
    let isRefused = false;
    const emit = (): void => {
      isRefused = true;
    };
    const reader = new PageReader({ ...this.#options, emit });
    reader.continueToken = following.token;
    reader.#following = following;
    return { reader, isRefused: () => isRefused };
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
