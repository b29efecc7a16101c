import type { SimEtcd } from "../model/etcd.ts";

/** What a check of writes looks at. */
export interface SeenWorld {
  readonly cluster: { readonly etcd: SimEtcd };
  readonly schedule: { readonly now: number };
  violate(violation: string): void;
}

/**
 * Which program of ksvm writes. One that ran before a restore of etcd is not judged any more: a revision is given a second time
 * then, to another write, and is no precondition.
 */
export class Writers {
  readonly #writer: () => string | undefined;
  readonly #seen = new Set<string>();
  readonly #exempt = new Set<string>();

  constructor(etcd: SimEtcd, writer: () => string | undefined) {
    this.#writer = writer;
    // Whatever it writes: what it rests on may be undone.
    etcd.onRevision(() => void this.current());
    etcd.onRestore(() => this.#seen.forEach((name) => this.#exempt.add(name)));
  }

  /** `undefined` where it is none, or is not judged. */
  current(): string | undefined {
    const writer = this.#writer();
    if (writer?.startsWith("ksvm") !== true) return undefined;
    this.#seen.add(writer);
    return this.#exempt.has(writer) ? undefined : writer;
  }
}
