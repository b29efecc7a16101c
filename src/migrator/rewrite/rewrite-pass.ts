import { compareResourceVersions, isNewer } from "../../api/resource-version.ts";
import type { Clock } from "../../clock.ts";
import type { ApiClient } from "../../kube/client.ts";
import type { ListedObject } from "../../kube/listed-object.ts";
import type { ListedPage } from "../../kube/listed-page.ts";
import type { Resource } from "../../kube/resources.ts";
import type { ResumePoint } from "./checkpoint.ts";
import type { Tally } from "./counts.ts";
import type { RewriteEvent } from "./events.ts";
import { ListPosition } from "./list-position.ts";
import { PageReader } from "./page-reader.ts";
import type { Pacer } from "../../retry/pacer.ts";
import { Patience } from "../../retry/patience.ts";
import type { Retrier } from "../../retry/retrier.ts";
import { rewriteObject } from "./rewrite.ts";
import type { ObjectOutcome, RewriteContext } from "./rewrite-context.ts";
import type { Advance, RunBudget } from "../../retry/run-budget.ts";
import { SetAside } from "./set-aside.ts";

/** What a {@link RewritePass} needs. */
export interface RewritePassOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly retrier: Retrier;
  /** Told how far the run is. @default none */
  readonly budget?: RunBudget;
  /** The same. @default none */
  readonly onAdvance?: (advance: Advance) => void;
  readonly pacer: Pacer;
  readonly resource: Resource;
  readonly kind: string;
  /** Further served versions, for lists that fail in the one of `resource`. */
  readonly otherVersions: readonly string[];
  readonly pageSize: number;
  readonly dryRun: boolean;
  /** See {@link RewriteContext}. */
  readonly subresource?: "status" | undefined;
  /** The same. */
  readonly adviceOnRejection?: string | undefined;
  readonly resume?: ResumePoint | undefined;
  /** Goes on with what it counts, where `resume` is believed; begins at nothing else. */
  readonly tally: Tally;
  /** How far an earlier attempt had listed whose counts `tally` goes on with. @default at the first object */
  readonly position?: ListPosition | undefined;
  readonly emit: (event: RewriteEvent) => void;
  readonly signal: AbortSignal;
  /** Called when a page is done. */
  readonly onPage: (point: ResumePoint, position: ListPosition) => Promise<void>;
  /** Called when an object is done. */
  readonly onObject: () => void;
  /** What is done about one object. @default {@link rewriteObject} */
  readonly rewrite?: (context: RewriteContext, object: ListedObject) => Promise<ObjectOutcome>;
  /** Whether the API versions that managedFields name are listed, too. @default false */
  readonly fieldVersions?: boolean;
  /** Which objects beyond the watermark are rewritten as well. @default none, or all where `rewrite` is not the default */
  readonly isDueLate?: (object: ListedObject) => boolean;
}

/**
 * Goes once over all objects of a resource, page by page, and rewrites those that were last written before the
 * watermark. It keeps one page in memory.
 */
export class RewritePass {
  readonly #options: RewritePassOptions;
  readonly #patience = new Patience();
  readonly #setAside = new SetAside<ListedObject>();
  readonly #reader: PageReader;
  #position: ListPosition;
  #watermark: string | undefined;

  constructor(options: RewritePassOptions) {
    this.#options = options;
    this.#reader = new PageReader(options);
    this.#position = options.position?.copy() ?? new ListPosition();
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
      const page = await this.#nextPage();
      this.#watermark ??= page.resourceVersion;
      const watermark = this.#watermark;
      await this.#rewritePage(page, watermark);
      await this.#options.onPage(this.#point(watermark), this.#position.copy());
    } while (this.#reader.continueToken !== undefined);
    await this.#tryAgain(this.#watermark);
  }

  /**
   * Where a later run may go on. An object that failed, or that is to be tried again, lies before the token: a run that
   * went on from there would miss it.
   */
  #point(watermark: string): ResumePoint {
    const isMissed = this.#options.tally.counts.failed > 0 || this.#setAside.size > 0;
    const { continueToken } = this.#reader;
    return continueToken === undefined || isMissed ? { watermark } : { watermark, continueToken };
  }

  /**
   * Lists one object before the first page: a conversion webhook that is down shows by that. Then takes what an earlier
   * run left, unless etcd was restored from a backup since: it counts from an older revision then, and what a watermark
   * beyond it says is void.
   */
  async #probe(): Promise<void> {
    const { resume, tally } = this.#options;
    const probe = await this.#reader.probe();
    const order = resume && compareResourceVersions(probe.resourceVersion, resume.watermark);
    if (resume !== undefined && order !== undefined && order >= 0) {
      this.#watermark = resume.watermark;
      this.#reader.continueToken = resume.continueToken;
      if (resume.continueToken === undefined) {
        this.#startOver();
      }
    } else {
      this.#position = new ListPosition();
      tally.clear();
    }
  }

  /** A list that begins at the first object again shows objects that were counted already. */
  async #nextPage(): Promise<ListedPage> {
    const { restarts } = this.#reader;
    const page = await this.#reader.next();
    if (this.#reader.restarts > restarts) {
      this.#startOver();
    }
    return page;
  }

  #startOver(): void {
    const { tally } = this.#options;
    this.#position.startOver(tally.counts.gone);
    tally.startOver();
  }

  async #rewritePage({ items, remainingItemCount = 0 }: ListedPage, watermark: string): Promise<void> {
    const { clock, pacer, signal, tally } = this.#options;
    tally.counts.total = this.#position.listed + items.length + remainingItemCount;
    const due: ListedObject[] = [];
    for (const item of items) {
      this.#setAside.remove(item);
      if (!isNewer(item.resourceVersion, watermark) || this.#isDueLate(item)) {
        due.push(item);
      } else if (!this.#position.wasListed(item)) {
        tally.add(item, { kind: "newer" });
      }
    }
    const rewrite = async (object: ListedObject): Promise<void> => {
      const outcome = await this.#rewrite(object, watermark);
      if (outcome.kind !== "failed" || !this.#setAside.add(object, clock.monotonic())) {
        this.#count(object, outcome, watermark);
      }
    };
    await pacer.forEach(due, rewrite, signal);
    this.#position.passed(items);
  }

  #isDueLate(item: ListedObject): boolean {
    const { isDueLate, rewrite } = this.#options;
    return isDueLate?.(item) ?? rewrite !== undefined;
  }

  /** The second and last try of objects that could not be rewritten. */
  async #tryAgain(watermark: string): Promise<void> {
    const { clock, pacer, signal } = this.#options;
    const waitMs = this.#setAside.dueInMs(clock.monotonic());
    if (waitMs > 0) {
      await clock.sleep(waitMs, signal);
    }
    const rewrite = async (object: ListedObject): Promise<void> =>
      this.#count(object, await this.#rewrite(object, watermark), watermark);
    await pacer.forEach(this.#setAside.takeAll(), rewrite, signal);
  }

  #rewrite(object: ListedObject, watermark: string): Promise<ObjectOutcome> {
    const { client, rewrite = rewriteObject } = this.#options;
    const context = { ...this.#options, transport: client.transport, patience: this.#patience, watermark };
    return rewrite(context, object);
  }

  #count(object: ListedObject, outcome: ObjectOutcome, watermark: string): void {
    const { budget, clock, dryRun, onAdvance, onObject, retrier, tally } = this.#options;
    tally.add(object, outcome);
    if (outcome.kind !== "failed") {
      retrier.progressed();
    }
    // A dry-run leaves the object as it is, so the next attempt would count it again.
    const written = outcome.kind === "migrated" && !dryRun ? object.resourceVersion : undefined;
    const advance = { done: tally.counts.done, written, watermark };
    budget?.advanced(advance, clock.monotonic());
    onAdvance?.(advance);
    onObject();
  }
}
