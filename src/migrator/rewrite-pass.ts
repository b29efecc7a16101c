import type { ObjectMeta, PartialObjectMetadata, PartialObjectMetadataList } from "../api/meta.ts";
import { compareResourceVersions, isNewer } from "../api/resource-version.ts";
import type { Clock } from "../clock.ts";
import { KsvmError } from "../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import { failureKindOf, isConversionRefusal } from "../kube/failure.ts";
import type { Resource } from "../kube/resources.ts";
import type { ResumePoint } from "./checkpoint.ts";
import { isTokenFailure, nextTokenAfter } from "./continue-token.ts";
import type { Tally } from "./counts.ts";
import type { EventSink } from "./events.ts";
import { listInAnyVersion } from "./list-in-any-version.ts";
import type { Pacer } from "./pacer.ts";
import { Patience } from "./patience.ts";
import type { Retrier } from "./retrier.ts";
import { type ObjectOutcome, rewriteObject } from "./rewrite.ts";
import type { RunBudget } from "./run-budget.ts";
import { SetAside } from "./set-aside.ts";
import { WaitingForOthers } from "./start-again.ts";

/** What a {@link RewritePass} needs. */
export interface RewritePassOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  /** Told how far the run is. @default none */
  readonly budget?: RunBudget;
  readonly pacer: Pacer;
  readonly resource: Resource;
  readonly kind: string;
  /** Further served versions, for lists that fail in the one of `resource`. */
  readonly otherVersions: readonly string[];
  readonly pageSize: number;
  readonly dryRun: boolean;
  readonly resume?: ResumePoint | undefined;
  readonly tally: Tally;
  readonly emit: EventSink;
  readonly signal: AbortSignal;
  /** Called when a page is done. */
  readonly onPage: (point: ResumePoint) => Promise<void>;
  /** Called when an object is done. */
  readonly onObject: () => void;
}

/**
 * Goes once over all objects of a resource, page by page, and rewrites those that were last written before the
 * watermark. It keeps one page in memory.
 */
export class RewritePass {
  readonly #options: RewritePassOptions;
  readonly #patience = new Patience();
  readonly #setAside = new SetAside<ObjectMeta>();
  #watermark: string | undefined;
  #continueToken: string | undefined;

  constructor(options: RewritePassOptions) {
    this.#options = options;
  }

  /** Whether it went on from the point that it was given. */
  get isResumed(): boolean {
    const { resume } = this.#options;
    return resume !== undefined && resume.watermark === this.#watermark;
  }

  /** @throws {KsvmError} VersionNotServed, RetryBudgetExceeded, and whatever the client's fence throws. */
  async run(): Promise<void> {
    await this.#probe();
    do {
      const page = await this.#nextPage(this.#options.pageSize);
      this.#watermark ??= page.metadata.resourceVersion;
      const watermark = this.#watermark;
      this.#estimateTotal(page);
      await this.#rewritePage(page.items, watermark);
      const next = page.metadata.continue;
      this.#continueToken = next === undefined || next === "" ? undefined : next;
      await this.#options.onPage(this.#point(watermark));
    } while (this.#continueToken !== undefined);
    await this.#tryAgain(this.#watermark);
  }

  /**
   * Where a later run may go on. An object that failed, or that is to be tried again, lies before the token: a run that
   * went on from there would miss it.
   */
  #point(watermark: string): ResumePoint {
    const isMissed = this.#options.tally.counts.failed > 0 || this.#setAside.size > 0;
    return this.#continueToken === undefined || isMissed
      ? { watermark }
      : { watermark, continueToken: this.#continueToken };
  }

  /**
   * Lists one object before the first page: a conversion webhook that is down shows by that. Then takes what an earlier
   * run left, unless etcd was restored from a backup since: it counts from an older revision then, and what a watermark
   * beyond it says is void.
   */
  async #probe(): Promise<void> {
    const { resume } = this.#options;
    const probe = await this.#nextPage(1);
    const order = resume && compareResourceVersions(probe.metadata.resourceVersion, resume.watermark);
    if (resume !== undefined && order !== undefined && order >= 0) {
      this.#watermark = resume.watermark;
      this.#continueToken = resume.continueToken;
    }
  }

  async #nextPage(limit: number): Promise<PartialObjectMetadataList> {
    try {
      return await this.#untilListed(limit);
    } catch (error) {
      const request = { kind: "list", limit, continueToken: this.#continueToken } as const;
      throw error instanceof WaitingForOthers ? error.about(request) : error;
    }
  }

  async #untilListed(limit: number): Promise<PartialObjectMetadataList> {
    const { client, retrier, signal } = this.#options;
    let since: number | undefined;
    for (let attempt = 0; ; attempt++) {
      const continueToken = this.#continueToken;
      try {
        const options = { limit, continueToken, signal };
        return await retrier.run(() => listInAnyVersion(client, this.#options, options), signal);
      } catch (error) {
        if (isConversionRefusal(error)) {
          // No served version can list it: whoever keeps the object or the webhook has to mend it.
          since ??= this.#options.clock.monotonic();
          await retrier.pause(error, { attempt, since }, signal);
        } else {
          this.#afterListFailure(error, continueToken);
        }
      }
    }
  }

  #afterListFailure(error: unknown, continueToken: string | undefined): void {
    const kind = failureKindOf(error);
    if (kind === "unserved" || kind === "gone") {
      const { group, version, resource } = this.#options.resource;
      const text = `Cannot list "${resource}.${group}": version "${version}" is not served any more`;
      throw new KsvmError("VersionNotServed", text, { cause: error });
    }
    if (continueToken === undefined || !isTokenFailure(error)) {
      throw error;
    }
    this.#continueToken = nextTokenAfter(error, continueToken);
    const startsOver = this.#continueToken === undefined;
    this.#options.emit({ type: "tokenRefused", status: error.status, startsOver });
  }

  #estimateTotal(page: PartialObjectMetadataList): void {
    const { counts } = this.#options.tally;
    counts.total = counts.done + this.#setAside.size + page.items.length + (page.metadata.remainingItemCount ?? 0);
  }

  async #rewritePage(items: readonly PartialObjectMetadata[], watermark: string): Promise<void> {
    const { clock, pacer, signal, tally } = this.#options;
    const due: ObjectMeta[] = [];
    for (const { metadata } of items) {
      this.#setAside.remove(metadata);
      if (isNewer(metadata.resourceVersion, watermark)) {
        tally.add(metadata, { kind: "newer" });
      } else {
        due.push(metadata);
      }
    }
    const rewrite = async (object: ObjectMeta): Promise<void> => {
      const outcome = await this.#rewrite(object, watermark);
      if (outcome.kind !== "failed" || !this.#setAside.add(object, clock.monotonic())) {
        this.#count(object, outcome);
      }
    };
    await pacer.forEach(due, rewrite, signal);
  }

  /** The second and last try of objects that could not be rewritten. */
  async #tryAgain(watermark: string): Promise<void> {
    const { clock, pacer, signal } = this.#options;
    const waitMs = this.#setAside.dueInMs(clock.monotonic());
    if (waitMs > 0) {
      await clock.sleep(waitMs, signal);
    }
    const rewrite = async (object: ObjectMeta): Promise<void> =>
      this.#count(object, await this.#rewrite(object, watermark));
    await pacer.forEach(this.#setAside.takeAll(), rewrite, signal);
  }

  #rewrite(metadata: ObjectMeta, watermark: string): Promise<ObjectOutcome> {
    const { client, kind } = this.#options;
    const context = { ...this.#options, transport: client.transport, patience: this.#patience, watermark };
    return rewriteObject(context, { apiVersion: "meta.k8s.io/v1", kind, metadata });
  }

  #count(object: ObjectMeta, outcome: ObjectOutcome): void {
    const { budget, clock, onObject, retrier, tally } = this.#options;
    tally.add(object, outcome);
    if (outcome.kind !== "failed") {
      retrier.progressed();
    }
    budget?.advanced({ done: tally.counts.done, written: outcome.kind === "migrated" }, clock.monotonic());
    onObject();
  }
}
