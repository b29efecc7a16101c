import type { CustomResourceDefinition } from "../../api/crd.ts";
import { isNewer } from "../../api/resource-version.ts";
import { areSchemasAlike, brokenSchemas } from "../freeze/crd-expectation.ts";
import type { Fence } from "../kube/transport-options.ts";
import type { ForeignPrunes } from "./foreign-prunes.ts";
import type { ObjectReads } from "./rewrite/rewrite-context.ts";
import { StartAgain } from "../retry/start-again.ts";

/** So many schemas of a CRD while API servers settle are kept in mind: each takes as much memory as the CRD. */
const MAX_FOLLOWED = 15;

/**
 * An API server that has not followed a schema of a CRD prunes the fields that are new in it when it writes an object. So each object that a run with a
 * freeze writes must be one that was written by the schemas that every API server was shown to follow.
 *
 * The first list sets the watermark, and what lies beyond it is not written: a look after that list shows by which schemas all else was written, and later edits do
 * not matter. The watch may tell of an earlier schema after that look, so the first write waits for the watch once. A run that goes on from a checkpoint has the watermark of an earlier attempt, whose schemas were the same. A run that
 * converts managedFields writes what lies beyond the watermark, too: it takes a look after each page, and after each object that it reads again.
 */
export class FollowedSchemas implements ObjectReads {
  readonly #prunes: ForeignPrunes;
  readonly #converts: () => boolean;
  /** The CRD with each schema since every API server was shown to follow it, until the look after the first list: one that is behind may have any of them. */
  #followed: readonly CustomResourceDefinition[] = [];
  /** Whether there were more than {@link MAX_FOLLOWED}. */
  #areTooMany = false;
  /** Called with the reason why nothing may be written any more. @default nobody asks */
  onBroken: (reason: StartAgain) => void = () => undefined;
  /** Resolves once the watch has told {@link saw} of each schema before a state of the CRD. @default at once */
  toldUpTo: (crd: CustomResourceDefinition) => Promise<void> = () => Promise.resolve();
  /** Whether the watermark is that of an earlier attempt. */
  isResumed: () => boolean = () => false;
  #isListed = false;
  /** The newest state of the CRD that was seen since the first list. */
  #newest: CustomResourceDefinition | undefined;
  /** The wait for the watch, before the first write. */
  #told: Promise<void> | undefined;
  /** Whether an object may be written next that was written by other schemas. */
  #isJudging = false;

  /**
   * @param prunes looks at the CRD, and what a look shows is told to {@link saw}
   * @param converts whether the run converts managedFields, asked once it reads objects
   */
  constructor(prunes: ForeignPrunes, converts: () => boolean) {
    this.#prunes = prunes;
    this.#converts = converts;
  }

  /**
   * To be awaited before an object is written.
   * @throws as `ForeignPrunes.passed()`
   */
  async passed(confirm: Fence): Promise<void> {
    const isJudged = this.#isJudging && !this.#converts();
    await this.#prunes.passed(isJudged ? () => this.#confirmedWhenTold(confirm) : confirm);
    if (isJudged) {
      this.#isJudging = false;
    }
  }

  /** One wait for all writes, up to the look after the first list: what comes later lies beyond the watermark. */
  async #confirmedWhenTold(confirm: Fence): Promise<void> {
    if (this.#newest !== undefined) {
      this.#told ??= this.toldUpTo(this.#newest);
      await this.#told;
    }
    await confirm();
  }

  /**
   * Takes note of the CRD as the run sees it; the first one is what every API server was shown to follow.
   * @throws {StartAgain} where an API server may change what the run writes
   */
  saw(crd: CustomResourceDefinition): void {
    if (!this.#isListed) {
      this.#note(crd);
      return;
    }
    const broken = this.#isJudging ? this.#brokenBy(this.#converts() ? crd : this.#newestOf(crd)) : undefined;
    if (broken !== undefined) {
      this.onBroken(broken);
      throw broken;
    }
  }

  /** The watch may tell of a schema that came and went before the look: that counts as well. */
  #newestOf(crd: CustomResourceDefinition): CustomResourceDefinition {
    this.#note(crd);
    const before = this.#newest;
    const isOlder = before !== undefined && isNewer(before.metadata.resourceVersion, crd.metadata.resourceVersion);
    const newest = isOlder ? before : crd;
    this.#newest = newest;
    return newest;
  }

  #note(crd: CustomResourceDefinition): void {
    if (this.#followed.some((one) => areSchemasAlike(one, crd))) {
      return;
    }
    this.#areTooMany = this.#followed.length === MAX_FOLLOWED;
    this.#followed = [...this.#followed, crd].slice(0, MAX_FOLLOWED);
  }

  #brokenBy(crd: CustomResourceDefinition): StartAgain | undefined {
    if (this.#areTooMany) {
      const why = `it had more than ${MAX_FOLLOWED} schemas while API servers settled; nothing was pruned, run again`;
      return new StartAgain("NotConverged", `Cannot continue with "${crd.metadata.name}": ${why}`);
    }
    return this.#followed.map((one) => brokenSchemas(one, crd)).find((broken) => broken !== undefined);
  }

  /** The run writes no object of the first page, or of each where it converts, before a look that begins after it read that page. */
  pageRead(): void {
    if (this.#converts() || !(this.#isListed || this.isResumed())) {
      this.#isJudging = true;
      this.#prunes.outdate();
    }
    this.#isListed = true;
  }

  /** The run writes no object any more. */
  written(): void {
    this.#isJudging = false;
  }

  /** Resolves once the run may write an object that it has read again. @throws as `ForeignPrunes.passed()` */
  async objectRead(): Promise<void> {
    await (this.#converts() ? this.#prunes.lookFromNow() : undefined);
  }
}
