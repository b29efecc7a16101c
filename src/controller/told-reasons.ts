/** So many reasons are remembered for one subject; more of them differ in something that passes, such as a time. */
const MAX_REASONS = 8;

/**
 * What the log has said already, so that it is said once. It is bounded: what is gone is forgotten, and of one subject a few
 * reasons are news.
 */
export class ToldReasons {
  readonly #told = new Map<string, Set<string>>();

  /** How many reasons are remembered. */
  get size(): number {
    return [...this.#told.values()].reduce((sum, { size }) => sum + size, 0);
  }

  /** Takes it for said from now on. @returns whether it is news */
  isNews(subject: string, reason: string): boolean {
    const reasons = this.#told.get(subject) ?? new Set();
    this.#told.set(subject, reasons);
    if (reasons.has(reason) || reasons.size >= MAX_REASONS) {
      return false;
    }
    reasons.add(reason);
    return true;
  }

  /** Forgets every other subject. */
  keepOnly(subjects: ReadonlySet<string>): void {
    for (const subject of [...this.#told.keys()].filter((one) => !subjects.has(one))) {
      this.#told.delete(subject);
    }
  }
}
