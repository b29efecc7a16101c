import { worstOf, type ExitCode, EXIT } from "../render/exit-codes.ts";
import type { Chosen } from "../shared/choose-resources.ts";

/** What a resource was rewritten with. */
interface Rewritten {
  /** How the API servers encrypted when that ended, and since when late writes had landed. */
  readonly fingerprint: string;
}

/** What is to be rewritten in the next round, and why. */
export interface Due {
  readonly names: readonly string[];
  /** `changed`: the API servers encrypt otherwise since; `appeared`: the resources were not there when they were listed. */
  readonly why: "changed" | "appeared";
}

/**
 * Which resources are to be rewritten after a look at how the API servers encrypt: those that were rewritten before that changed, and, of "all", those
 * that came since they were listed, as a CRD with objects that an API server wrote with the old key.
 */
export class DueResources {
  readonly #listAgain: Chosen["listAgain"];
  readonly #tried: Set<string>;
  #listedAfter: string | undefined;
  #code: ExitCode = EXIT.done;

  /** @param names those of the first round */
  constructor({ listAgain, names }: Pick<Chosen, "listAgain" | "names">) {
    this.#listAgain = listAgain;
    this.#tried = new Set(names);
  }

  /** All that were due so far. */
  get tried(): ReadonlySet<string> {
    return this.#tried;
  }

  /** What listing again comes to by itself. */
  get code(): ExitCode {
    return this.#code;
  }

  /**
   * To be called after each round. Where everything was rewritten as the look found it, the resources are listed once more: late writes have landed by then, so
   * what comes after that list is written as the look found it, as long as the next look finds the same.
   * @param fingerprint what the look found
   * @throws {ApiError | TransportError}
   */
  async after(fingerprint: string, done: ReadonlyMap<string, Rewritten>): Promise<Due> {
    const changed = [...done].filter(([, one]) => one.fingerprint !== fingerprint).map(([name]) => name);
    if (changed.length > 0) {
      return { names: changed, why: "changed" };
    }
    const names = this.#listedAfter === fingerprint ? [] : await this.#appeared();
    this.#listedAfter = fingerprint;
    return { names, why: "appeared" };
  }

  async #appeared(): Promise<readonly string[]> {
    const { code, names } = (await this.#listAgain?.()) ?? { code: EXIT.done, names: [] };
    this.#code = worstOf([this.#code, code]);
    const appeared = names.filter((name) => !this.#tried.has(name));
    for (const name of appeared) {
      this.#tried.add(name);
    }
    return appeared;
  }
}
