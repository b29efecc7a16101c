import { KsvmError } from "../../errors.ts";

/**
 * The continue tokens of one list, in the order in which its pages answer with them. A list that goes in a circle would be
 * read without end: a server or a proxy before it may answer token A with token B, and B with A.
 *
 * A token stands for a place in the list, so one that comes a second time proves a circle, whatever the list is ordered
 * by: an API server of Kubernetes lists by the key in etcd, an aggregated one by anything. Brent's algorithm finds a circle
 * of any length, and keeps one token: it compares each token with one before it, which it replaces after 1, 2, 4, 8 … of
 * them. It reads at most three times as many pages as the list has until it repeats itself.
 *
 * Brent, An improved Monte Carlo factorization algorithm, BIT 20 (1980), section 3
 */
export class TokenTrail {
  readonly #path: string;
  #kept: string | undefined;
  #sinceKept = 0;
  #keepFor = 1;

  /** @param path of the list, as an error names it */
  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Takes the token that a page answers with.
   * @returns the token to go on with; `undefined` after the last page
   * @throws {KsvmError} ApiRequestFailed where the list goes in a circle.
   */
  next(token: string | undefined): string | undefined {
    if (token === undefined || token === "") {
      return undefined;
    }
    if (token === this.#kept) {
      const text =
        `Cannot list ${this.#path} to its end: its pages answer with a continue token that one before them answered ` +
        "with, so the list never ends; look at the API server, or at the proxy before it";
      throw new KsvmError("ApiRequestFailed", text);
    }
    if (this.#kept === undefined || ++this.#sinceKept === this.#keepFor) {
      this.#keepFor *= this.#kept === undefined ? 1 : 2;
      this.#kept = token;
      this.#sinceKept = 0;
    }
    return token;
  }

  /** The list begins at its first object again: the same tokens may come once more. */
  startOver(): void {
    this.#kept = undefined;
    this.#sinceKept = 0;
    this.#keepFor = 1;
  }
}
