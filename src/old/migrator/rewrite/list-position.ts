import type { ObjectIdentity } from "../../kube/listed-object.ts";
import { objectNameOf } from "../../kube/named-object.ts";

/** A {@link ListPosition} as it is kept in the cluster. */
export interface ListPositionState {
  readonly listed: number;
  /** The name of the last object that was listed. */
  readonly last?: string;
  /** The same before the list last began again, where it was further then. */
  readonly listedTo?: string;
}

/**
 * How far a list is. An API server lists objects by namespace and name, so after a restart it is known which of them were
 * listed before. Only counts rest on that.
 */
export class ListPosition {
  /** Objects that the list showed, with those that were there before a restart and are gone. */
  listed: number;
  #last: string | undefined;
  #listedTo: string | undefined;

  /** @param before goes on from there. @default at the first object */
  constructor({ listed, last, listedTo }: ListPositionState = { listed: 0 }) {
    this.listed = listed;
    this.#last = last;
    this.#listedTo = listedTo;
  }

  /** What another one can go on from. */
  get state(): ListPositionState {
    return {
      listed: this.listed,
      ...(this.#last === undefined ? {} : { last: this.#last }),
      ...(this.#listedTo === undefined ? {} : { listedTo: this.#listedTo }),
    };
  }

  /** A copy of its own. */
  copy(): ListPosition {
    return new ListPosition(this.state);
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
