import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COMMA,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  skipSpace,
} from "./json-scan.ts";

/** Limits of an {@link ItemSplitter}, in bytes. */
export interface SplitLimits {
  /** The largest item. */
  readonly itemBytes: number;
  /** Everything around the items. */
  readonly restBytes: number;
}

/** The text is no list of objects, or a part of it is larger than the limits allow. */
export class UnsplittableList extends Error {
  override readonly name = "UnsplittableList";
}

/** Levels of nesting: the list, its items, one item. */
const [IN_LIST, IN_ITEMS, IN_ITEM] = [1, 2, 3];
const ITEMS_KEY = /"items"\s*:\s*$/;
const FIRST_ITEM_BYTES = 64 * 1_024;

/**
 * Splits the JSON text of a Kubernetes list into its items as the text arrives, so that memory holds one item at a time.
 * It only follows strings and nesting, and what stands between two items: who reads an item, or the rest, finds out
 * whether that is JSON. So nothing is left out unread, and a list that is not understood is never an empty one.
 */
export class ItemSplitter {
  readonly #onItem: (bytes: Buffer) => void;
  readonly #limits: SplitLimits;
  readonly #rest: Buffer[] = [];
  #restBytes = 0;
  #item: Buffer = Buffer.allocUnsafeSlow(FIRST_ITEM_BYTES);
  #itemBytes = 0;
  #depth = 0;
  #isInItems = false;
  /** Whether the next thing among the items is a comma or their end. */
  #isAfterItem = false;
  #isAfterComma = false;
  #isInString = false;
  #isEscaped = false;

  /** @param onItem gets the text of each item; the bytes are good until it returns */
  constructor(onItem: (bytes: Buffer) => void, limits: SplitLimits) {
    this.#onItem = onItem;
    this.#limits = limits;
  }

  /** @throws {UnsplittableList} and whatever `onItem` throws. */
  push(chunk: Buffer): void {
    /** Where what has not been kept yet begins; of the items only what is in one is kept. */
    let keptTo = 0;
    for (let index = 0; index < chunk.length; index++) {
      if (this.#isInString) {
        index = this.#skipString(chunk, index);
        continue;
      }
      const byte = chunk[index];
      if (this.#isInItems && this.#depth === IN_ITEMS) {
        this.#between(chunk, index);
      }
      if (byte === QUOTE) {
        this.#isInString = true;
      } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        keptTo = this.#open(chunk, index, keptTo);
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        keptTo = this.#close(chunk, index, keptTo);
      }
    }
    this.#keep(chunk.subarray(keptTo));
  }

  /**
   * The text around the items, once all has arrived: the list with an empty `items`.
   * @throws {UnsplittableList} where the list is not whole.
   */
  end(): string {
    if (this.#depth !== 0 || this.#isInString) {
      throw new UnsplittableList("the list broke off");
    }
    return Buffer.concat(this.#rest).toString("utf8");
  }

  /** @throws {UnsplittableList} where anything but objects stands among the items, which would be left out. */
  #between(chunk: Buffer, index: number): void {
    const byte = chunk[index];
    const isExpected = this.#isAfterItem
      ? byte === COMMA || byte === CLOSE_BRACKET
      : byte === OPEN_BRACE || (byte === CLOSE_BRACKET && !this.#isAfterComma);
    if (!isExpected && skipSpace(chunk, index) === index) {
      throw new UnsplittableList("there is something else than objects among the items");
    }
    if (isExpected) {
      this.#isAfterItem = byte === OPEN_BRACE;
      this.#isAfterComma = byte === COMMA;
    }
  }

  /** @returns the index of the last byte that belongs to the string, or of the chunk */
  #skipString(chunk: Buffer, at: number): number {
    for (let index = at; index < chunk.length; index++) {
      const byte = chunk[index];
      if (this.#isEscaped) {
        this.#isEscaped = false;
      } else if (byte === BACKSLASH) {
        this.#isEscaped = true;
      } else if (byte === QUOTE) {
        this.#isInString = false;
        return index;
      }
    }
    return chunk.length;
  }

  #open(chunk: Buffer, index: number, keptTo: number): number {
    this.#depth++;
    if (this.#isInItems && this.#depth === IN_ITEM) {
      return index;
    }
    if (this.#depth === IN_ITEMS && chunk[index] === OPEN_BRACKET) {
      this.#keep(chunk.subarray(keptTo, index));
      this.#isInItems = ITEMS_KEY.test(Buffer.concat(this.#rest).toString("latin1"));
      if (this.#isInItems) {
        this.#keepRest(chunk.subarray(index, index + 1));
        return index + 1;
      }
      return index;
    }
    return keptTo;
  }

  #close(chunk: Buffer, index: number, keptTo: number): number {
    this.#depth--;
    if (!this.#isInItems) {
      return keptTo;
    }
    if (this.#depth === IN_ITEMS) {
      this.#endItem(chunk.subarray(keptTo, index + 1));
      return index + 1;
    }
    if (this.#depth === IN_LIST) {
      this.#isInItems = false;
      return index;
    }
    return keptTo;
  }

  #keep(bytes: Buffer): void {
    if (!this.#isInItems) {
      this.#keepRest(bytes);
    } else if (this.#depth >= IN_ITEM) {
      this.#keepItem(bytes);
    }
  }

  #keepRest(bytes: Buffer): void {
    this.#restBytes += bytes.length;
    if (this.#restBytes > this.#limits.restBytes) {
      throw new UnsplittableList(`there are more than ${this.#limits.restBytes} bytes beside the items`);
    }
    // A copy: the rest of a chunk must not keep the chunk.
    this.#rest.push(Buffer.from(bytes));
  }

  #keepItem(bytes: Buffer): void {
    const end = this.#itemBytes + bytes.length;
    if (end > this.#limits.itemBytes) {
      throw new UnsplittableList(`an item is larger than ${this.#limits.itemBytes} bytes`);
    }
    if (end > this.#item.length) {
      const larger = Buffer.allocUnsafeSlow(Math.min(this.#limits.itemBytes, Math.max(end, 2 * this.#item.length)));
      this.#item.copy(larger, 0, 0, this.#itemBytes);
      this.#item = larger;
    }
    bytes.copy(this.#item, this.#itemBytes);
    this.#itemBytes = end;
  }

  /** An item that lies in one chunk is read where it lies. */
  #endItem(last: Buffer): void {
    if (this.#itemBytes === 0) {
      this.#onItem(last);
      return;
    }
    this.#keepItem(last);
    const bytes = this.#item.subarray(0, this.#itemBytes);
    this.#itemBytes = 0;
    this.#onItem(bytes);
  }
}
