import type { ObjectIdentity } from "../kube/listed-object.ts";
import { objectNameOf } from "./counts.ts";

/**
 * How far a list is. An API server lists objects by namespace and name, so after a restart it is known which of them were
 * listed before. Only counts rest on that.
 */
export class ListPosition {
  /** Objects that the list showed, with those that were there before a restart and are gone. */
  listed = 0;
  #last: string | undefined;
  #listedTo: string | undefined;

  /** A copy of its own. */
  copy(): ListPosition {
    const copy = new ListPosition();
    copy.listed = this.listed;
    copy.#last = this.#last;
    copy.#listedTo = this.#listedTo;
    return copy;
  }

  /** A page is done. */
  passed(items: readonly ObjectIdentity[]): void {
    this.listed += items.length;
    const last = items.at(-1);
    if (last !== undefined) {
      this.#last = objectNameOf(last);
    }
  }

  /** The list began at the first object again. @param gone objects that it will not show again */
  startOver(gone: number): void {
    this.listed = gone;
    if (this.#last !== undefined && (this.#listedTo === undefined || this.#last > this.#listedTo)) {
      this.#listedTo = this.#last;
    }
  }

  /** Whether an object lies in the part that was listed before the list began again. */
  wasListed(item: ObjectIdentity): boolean {
    return this.#listedTo !== undefined && objectNameOf(item) <= this.#listedTo;
  }
}
