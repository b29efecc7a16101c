import type { CustomResourceDefinition } from "../api/crd.ts";
import { brokenSchemas } from "../freeze/crd-expectation.ts";
import type { Fence } from "../kube/transport-options.ts";
import type { ForeignPrunes } from "./foreign-prunes.ts";
import type { ObjectReads } from "./rewrite/rewrite-context.ts";

/**
 * An API server that has not followed a schema of a CRD prunes the fields that are new in it when it writes an object. So each object that a run with a
 * freeze writes must be one that was written by the schemas that every API server was shown to follow.
 *
 * The first list sets the watermark, and what lies beyond it is not written: a look after that list shows by which schemas all else was written, and later edits do
 * not matter. A run that goes on from a checkpoint has the watermark of an earlier attempt, whose schemas were the same. A run that
 * converts managedFields writes what lies beyond the watermark, too: it takes a look after each page, and after each object that it reads again.
 */
export class FollowedSchemas implements ObjectReads {
  readonly #prunes: ForeignPrunes;
  readonly #converts: boolean;
  /** The CRD that every API server was shown to follow. */
  followed: CustomResourceDefinition | undefined;
  /** Whether the watermark is that of an earlier attempt. */
  isResumed: () => boolean = () => false;
  #isListed = false;
  /** Whether an object may be written next that was written by other schemas. */
  #isJudging = false;

  /**
   * @param prunes looks at the CRD, and has {@link judge} judge what a look shows
   * @param converts whether the run converts managedFields
   */
  constructor(prunes: ForeignPrunes, converts: boolean) {
    this.#prunes = prunes;
    this.#converts = converts;
  }

  /**
   * To be awaited before an object is written.
   * @throws as `ForeignPrunes.passed()`
   */
  async passed(confirm: Fence): Promise<void> {
    const isJudged = this.#isJudging && !this.#converts;
    await this.#prunes.passed(confirm);
    if (isJudged) {
      this.#isJudging = false;
    }
  }

  /** Takes note of the CRD as a look shows it. @throws {StartAgain} where an API server may prune what the run writes */
  judge(crd: CustomResourceDefinition): void {
    const broken = this.#isJudging && this.followed !== undefined ? brokenSchemas(this.followed, crd) : undefined;
    if (broken !== undefined) {
      throw broken;
    }
  }

  /** The run writes no object of the first page, or of each where it converts, before a look that begins after it read that page. */
  pageRead(): void {
    if (this.#converts || !(this.#isListed || this.isResumed())) {
      this.#isJudging = true;
      this.#prunes.outdate();
    }
    this.#isListed = true;
  }

  /** Resolves once the run may write an object that it has read again. @throws as `ForeignPrunes.passed()` */
  async objectRead(): Promise<void> {
    await (this.#converts ? this.#prunes.lookFromNow() : undefined);
  }
}
