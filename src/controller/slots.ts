/** Where new work comes from. */
export interface NewWork {
  /** Begins the next piece of it, which has the slot from then on; `false` where there is none. */
  readonly start: (slot: Slot) => boolean;
  /** Whether there is any. */
  readonly isThere: () => boolean;
}

/**
 * Bounds how many pieces of work go on at once. Work that only waits gives its slot back for that time. New work and work
 * that comes back take turns, so that neither can starve the other: much that waits again and again still lets new work
 * begin, and a long queue of new work still lets what has waited go on.
 */
export class Slots {
  readonly #size: number;
  readonly #newWork: NewWork;
  readonly #returning: (() => void)[] = [];
  #taken = 0;
  #isNewNext = true;

  constructor(size: number, newWork: NewWork) {
    this.#size = size;
    this.#newWork = newWork;
  }

  /** Whether any work stands in the queue for a slot. */
  get isWanted(): boolean {
    return this.#returning.length > 0 || this.#newWork.isThere();
  }

  /** Begins as much work as there is room for. To be called whenever there may be new work. */
  dispatch(): void {
    while (this.#taken < this.#size && this.#beginOne()) {
      // Each turn takes one slot.
    }
  }

  #beginOne(): boolean {
    return this.#isNewNext ? this.#startNew() || this.#letBack() : this.#letBack() || this.#startNew();
  }

  #startNew(): boolean {
    this.#taken++;
    if (this.#newWork.start(this.#slot())) {
      this.#isNewNext = false;
      return true;
    }
    this.#taken--;
    return false;
  }

  #letBack(): boolean {
    const next = this.#returning.shift();
    if (next === undefined) {
      return false;
    }
    this.#taken++;
    this.#isNewNext = true;
    next();
    return true;
  }

  #slot(): Slot {
    return new Slot({
      give: () => {
        this.#taken--;
        this.dispatch();
      },
      queue: (onTurn) => {
        this.#returning.push(onTurn);
        this.dispatch();
        return () => {
          const index = this.#returning.indexOf(onTurn);
          this.#returning.splice(index, index === -1 ? 0 : 1);
        };
      },
    });
  }
}

/** The slot of one piece of work: it has it or waits for it, and ends without it. */
export class Slot {
  readonly #slots: { readonly give: () => void; readonly queue: (onTurn: () => void) => () => void };
  #isHeld = true;

  constructor(slots: { readonly give: () => void; readonly queue: (onTurn: () => void) => () => void }) {
    this.#slots = slots;
  }

  /** Whether this work has it. */
  get isHeld(): boolean {
    return this.#isHeld;
  }

  /** Gives the slot back, where this work has it. */
  give(): void {
    if (this.#isHeld) {
      this.#isHeld = false;
      this.#slots.give();
    }
  }

  /**
   * Waits for a turn, where this work does not have the slot.
   * @throws the signal's reason if it is aborted before that.
   */
  async acquire(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#isHeld) {
      return;
    }
    const turn = Promise.withResolvers<void>();
    const leave = this.#slots.queue(() => {
      this.#isHeld = true;
      turn.resolve();
    });
    const onAbort = (): void => {
      leave();
      turn.reject(signal.reason as Error);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      await turn.promise;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }
}
