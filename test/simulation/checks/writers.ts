import type { SimEtcd } from "../model/etcd.ts";
import type { EtcdEntry } from "../model/timeline.ts";

/** What a check of writes looks at. */
export interface SeenWorld {
  readonly cluster: { readonly etcd: SimEtcd };
  readonly schedule: { readonly now: number };
  violate(violation: string): void;
}

/** For so long a run believes that it holds its Lease, which a restore of etcd may have taken away and given to another run, in milliseconds. */
const HELD_MS = 15_000;

/**
 * Which program of ksvm writes. One that ran before a restore of etcd is not judged where it writes over a revision that was given a second
 * time: that is no precondition. Nor is it until it has to have renewed its Lease, which tells it of the restore.
 */
export class Writers {
  readonly #writer: () => string | undefined;
  readonly #now: () => number;
  #restoredAt = Number.NEGATIVE_INFINITY;
  readonly #seen = new Set<string>();
  readonly #restored = new Set<string>();
  /** The revisions that were given a second time: those after the first one of each pair, up to the second one. */
  readonly #twice: (readonly [number, number])[] = [];

  constructor(
    { cluster: { etcd }, schedule }: Pick<SeenWorld, "cluster" | "schedule">,
    writer: () => string | undefined,
  ) {
    this.#writer = writer;
    this.#now = () => schedule.now;
    let newest = etcd.revision;
    etcd.onRevision(({ modRevision }) => {
      newest = Math.max(newest, modRevision);
      const name = this.#program();
      if (name !== undefined) this.#seen.add(name);
    });
    etcd.onRestore(() => {
      this.#twice.push([etcd.revision, newest]);
      this.#restoredAt = this.#now();
      for (const name of this.#seen) this.#restored.add(name);
    });
  }

  /** Whether a program wrote something before a restore. */
  wroteBeforeRestore(program: string): boolean {
    return this.#restored.has(program);
  }

  /** Which one writes this. `undefined` where it is none, or is not judged. */
  of({ before }: EtcdEntry): string | undefined {
    const name = this.#program();
    if (name === undefined || !this.#restored.has(name)) return name;
    if (this.#now() - this.#restoredAt < HELD_MS) return undefined;
    const { modRevision = 0 } = before ?? {};
    return this.#twice.some(([from, to]) => modRevision > from && modRevision <= to) ? undefined : name;
  }

  #program(): string | undefined {
    const writer = this.#writer();
    return writer?.startsWith("ksvm") === true ? writer : undefined;
  }
}
