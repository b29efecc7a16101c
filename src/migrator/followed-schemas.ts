import type { Fence } from "../kube/transport-options.ts";
import type { ForeignPrunes } from "./foreign-prunes.ts";
import type { ObjectReads } from "./rewrite/rewrite-context.ts";

/**
 * An API server that has not followed a schema of a CRD prunes the fields that are new in it when it writes an object. So each object that a run with a
 * freeze writes must be one that was written by the schemas that every API server was shown to follow.
 *
 * The first list sets the watermark, and what lies beyond it is not written: once a look after that list shows the same schemas, they may
 * change. A run that converts managedFields writes what lies beyond it, too: then it takes a look after each page, and after each object that the
 * run reads again, and they may not change at all.
 */
export class FollowedSchemas implements ObjectReads {
  readonly #prunes: ForeignPrunes;
  readonly #converts: boolean;
  #isListed = false;
  /** Called once the schemas may change. @default nobody asks */
  letChange: () => void = () => undefined;

  /**
   * @param prunes looks at the CRD, and has judged what a look shows
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
    const mayChange = this.#isListed && !this.#converts;
    await this.#prunes.passed(confirm);
    if (mayChange) {
      this.letChange();
    }
  }

  /** The run writes no object of the first page, or of each where it converts, before a look that begins after it read that page. */
  pageRead(): void {
    if (!this.#isListed || this.#converts) {
      this.#prunes.outdate();
    }
    this.#isListed = true;
  }

  /** Resolves once the run may write an object that it has read again. @throws as `ForeignPrunes.passed()` */
  async objectRead(): Promise<void> {
    await (this.#converts ? this.#prunes.lookFromNow() : undefined);
  }
}
