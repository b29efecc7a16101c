import { compareResourceVersions, isNewer } from "../../../api/resource-version.ts";
import type { Clock } from "../../../clock.ts";
import type { ApiClient } from "../../kube/client.ts";
import type { ListedObject } from "../../kube/listed-object.ts";
import type { Resource } from "../../kube/resources.ts";
import type { ResumePoint } from "./checkpoint.ts";
import { followingOf, keptOf } from "./counted-objects.ts";
import { Tally } from "./counts.ts";
import type { RewriteEvent } from "./events.ts";
import { ListPosition } from "./list-position.ts";
import { OpenPage, OpenPages } from "./open-pages.ts";
import { PageReader } from "./page-reader.ts";
import { type PageAhead, PagesAhead } from "./pages-ahead.ts";
import type { Pacer } from "../../retry/pacer.ts";
import { Patience } from "../../retry/patience.ts";
import type { Retrier } from "../../retry/retrier.ts";
import { rewriteObject } from "./rewrite.ts";
import type { ObjectOutcome, RewriteContext } from "./rewrite-context.ts";
import type { Advance, RunBudget } from "../../retry/run-budget.ts";
import { SetAside } from "./set-aside.ts";

/** How far a pass is at the end of a page, whatever was done of later ones. */
export interface Settled {
  /** Where a later run may go on. */
  readonly point: ResumePoint;
  readonly position: ListPosition;
  /** What became of the objects up to there. */
  readonly tally: Tally;
}

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
  /** The same, and of what was listed. */
  readonly objectsSeen?: RewriteContext["objectsSeen"];
  /** Told of each page before an object of it is written, and as {@link RewriteContext} has it. @default none */
  readonly reads?: RewriteContext["reads"];
  /** See {@link RewriteContext}. */
  readonly scope?: RewriteContext["scope"];
  /** The same. */
  readonly adviceOnRejection?: string | undefined;
  readonly resume?: ResumePoint | undefined;
  /** Goes on with what it counts, where `resume` is believed; begins at nothing else. */
  readonly tally: Tally;
  /** How far an earlier attempt had listed whose counts `tally` goes on with. @default at the first object */
  readonly position?: ListPosition | undefined;
  readonly emit: (event: RewriteEvent) => void;
  readonly signal: AbortSignal;
  /** Called when a page is done, for one page after the other, while the objects of later ones are under way. */
  readonly onPage: (settled: Settled) => Promise<void>;
  /** Called when an object is done. */
  readonly onObject: () => void;
  /** What is done about one object. @default {@link rewriteObject} */
  readonly rewrite?: (context: RewriteContext, object: ListedObject) => Promise<ObjectOutcome>;
  /** Whether the API versions that managedFields name are listed, too. @default false */
  readonly fieldVersions?: boolean;
  /** Which objects beyond the watermark are rewritten as well. @default none, or all where `rewrite` is not the default */
  readonly isDueLate?: (object: ListedObject) => boolean;
}

/** What became of an object that was written after the watermark. */
const NEWER: ObjectOutcome = { kind: "newer" };

/** An object to rewrite, and the page that it came on. */
interface DueObject {
  readonly object: ListedObject;
  readonly page: OpenPage;
}

/**
 * Goes once over all objects of a resource, page by page, and rewrites those that were last written before the
 * watermark. It keeps a few pages in memory: what comes next is listed, and what is done is kept in the cluster, while objects
 * are under way.
 */
export class RewritePass {
  readonly #options: RewritePassOptions;
  readonly #patience = new Patience();
  readonly #setAside = new SetAside<ListedObject>();
  readonly #abort = new AbortController();
  /** Aborted with the pass, and by what ends it. */
  readonly #signal: AbortSignal;
  readonly #reader: PageReader;
  readonly #pages: PagesAhead;
  readonly #open: OpenPages;
  /** What became of the objects of the pages that are done. */
  #settled: Tally;
  #position: ListPosition;
  #watermark: string | undefined;

  constructor(options: RewritePassOptions) {
    this.#options = options;
    this.#signal = AbortSignal.any([options.signal, this.#abort.signal]);
    this.#reader = new PageReader({ ...options, signal: this.#signal });
    this.#pages = new PagesAhead(this.#reader);
    this.#open = new OpenPages((page) => this.#pageDone(page), this.#signal);
    this.#settled = new Tally(options.tally);
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
    this.#settled = new Tally(this.#options.tally);
    try {
      await this.#options.pacer.forEach(this.#due(), (due) => this.#rewriteDue(due), this.#signal);
      await this.#open.drained();
    } finally {
      this.#abort.abort();
      await this.#pages.ended();
      await this.#open.idle();
    }
    await this.#tryAgain();
  }

  async *#due(): AsyncGenerator<DueObject> {
    for (let isLast = false; !isLast; ) {
      await this.#open.room();
      const ahead = await this.#pages.next();
      if (ahead.startsOver) {
        // Such a list shows objects that were counted already, and none of them may be under way.
        await this.#open.drained();
        this.#startOver();
      }
      yield* this.#dueOn(ahead);
      isLast = ahead.continueToken === undefined;
    }
  }

  *#dueOn({ page: listed, continueToken }: PageAhead): Generator<DueObject> {
    const { items, remainingItemCount = 0, resourceVersion } = listed;
    const { counts } = this.#options.tally;
    const page = new OpenPage(items, continueToken, followingOf(listed));
    this.#watermark ??= resourceVersion;
    this.#options.objectsSeen?.listed(resourceVersion);
    this.#options.reads?.pageRead();
    counts.total = this.#position.listed + this.#open.items + items.length + remainingItemCount;
    this.#open.add(page, (error) => this.#abort.abort(error));
    for (const object of items) {
      this.#setAside.remove(object);
      if (!isNewer(object.resourceVersion, this.#watermark) || this.#isDueLate(object)) {
        page.begun();
        yield { object, page };
      } else if (!this.#position.wasListed(object)) {
        this.#options.tally.add(object, NEWER);
        page.done.push([object, NEWER]);
      }
    }
    page.ended();
  }

  async #rewriteDue({ object, page }: DueObject): Promise<void> {
    try {
      const outcome = this.#countedOnce(object, await this.#rewrite(object, this.#signal));
      if (outcome.kind !== "failed" || !this.#setAside.add(object, this.#options.clock.monotonic())) {
        this.#count(object, outcome);
        page.done.push([object, outcome]);
      }
    } catch (error) {
      this.#abort.abort(error);
      throw error;
    }
    page.ended();
  }

  /** As for one that is not due: written since the watermark, it was counted before the list began again. */
  #countedOnce(object: ListedObject, outcome: ObjectOutcome): ObjectOutcome {
    const isLate = isNewer(object.resourceVersion, this.#watermark ?? "");
    const isWritten = outcome.kind === "newer" || outcome.kind === "migrated";
    return isWritten && isLate && this.#position.wasListed(object) ? { ...outcome, isCounted: true } : outcome;
  }

  async #pageDone(page: OpenPage): Promise<void> {
    const { onPage, tally } = this.#options;
    const settled = new Tally(this.#settled);
    for (const [object, outcome] of page.done) {
      settled.add(object, outcome);
    }
    settled.counts.total = tally.counts.total;
    this.#settled = settled;
    this.#position.passed(page.items);
    const [point, position] = [this.#point(page), this.#position.copy()];
    await onPage({ point, position, tally: new Tally(settled) });
  }

  /**
   * Where a later run may go on. An object that failed, that is to be tried again, or whose managedFields were kept, lies before the token:
   * a run that went on from there would miss it.
   */
  #point({ continueToken, following }: OpenPage): ResumePoint {
    const watermark = this.#watermark ?? "";
    const { counts, kept } = this.#settled;
    const isMissed = counts.failed > 0 || kept > 0 || this.#setAside.size > 0;
    return continueToken === undefined || isMissed
      ? { watermark }
      : { watermark, continueToken, ...(following === undefined ? {} : { following: keptOf(following) }) };
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
      this.#reader.goOnAt(resume);
      if (resume.continueToken === undefined) {
        this.#startOver();
      }
    } else {
      this.#position = new ListPosition();
      tally.clear();
    }
  }

  #startOver(): void {
    const { tally } = this.#options;
    this.#position.startOver(tally.counts.gone);
    tally.startOver();
    this.#settled.startOver();
  }

  #isDueLate(item: ListedObject): boolean {
    const { isDueLate, rewrite } = this.#options;
    return isDueLate?.(item) ?? rewrite !== undefined;
  }

  /** The second and last try of objects that could not be rewritten. */
  async #tryAgain(): Promise<void> {
    const { clock, pacer, signal } = this.#options;
    const waitMs = this.#setAside.dueInMs(clock.monotonic());
    if (waitMs > 0) {
      await clock.sleep(waitMs, signal);
    }
    const abort = new AbortController();
    const waitSignal = AbortSignal.any([signal, abort.signal]);
    const rewrite = async (object: ListedObject): Promise<void> => {
      try {
        this.#count(object, await this.#rewrite(object, waitSignal));
      } catch (error) {
        // As in the first one: those that wait for their turn are not sent any more.
        abort.abort(error);
        throw error;
      }
    };
    await pacer.forEach(this.#setAside.takeAll(), rewrite, waitSignal);
  }

  #rewrite(object: ListedObject, waitSignal: AbortSignal): Promise<ObjectOutcome> {
    const { client, rewrite = rewriteObject } = this.#options;
    const { transport } = client;
    const watermark = this.#watermark ?? "";
    return rewrite({ ...this.#options, transport, patience: this.#patience, waitSignal, watermark }, object);
  }

  #count(object: ListedObject, outcome: ObjectOutcome): void {
    const { budget, clock, dryRun, onAdvance, onObject, retrier, tally } = this.#options;
    tally.add(object, outcome);
    if (outcome.kind !== "failed") {
      retrier.progressed();
    }
    // A dry-run leaves the object as it is, so the next attempt would count it again.
    const written = outcome.kind === "migrated" && !dryRun ? object.resourceVersion : undefined;
    const advance = { done: tally.counts.done, written, watermark: this.#watermark ?? "" };
    budget?.advanced(advance, clock.monotonic());
    onAdvance?.(advance);
    onObject();
  }
}
