import { holderOf, type Lease } from "../../../src/api/lease.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import type { SimEtcd } from "../model/etcd.ts";

/** What a {@link RunLeasesCheck} needs. */
export interface RunLeasesCheckOptions {
  readonly report: (violation: string) => void;
  /** Who writes the revision that etcd tells of at this moment; a program of ksvm by its name, which its identity begins with. */
  readonly writer: () => string | undefined;
  /** Programs that are not judged. @default none */
  readonly isExempt?: (writer: string) => boolean;
  /** Milliseconds of true time. */
  readonly now: () => number;
}

const RUN_LEASE = /^\/registry\/leases\/[^/]+\/ksvm-migrate\./;
const DURATION_SECONDS = 15;

/** A Lease of a run is written by its holder alone, until it stood still for its whole duration. */
export class RunLeasesCheck {
  readonly #options: RunLeasesCheckOptions;
  /** When each was last written, by key. A restore makes that unknown. */
  readonly #writtenAt = new Map<string, number>();

  constructor(options: RunLeasesCheckOptions) {
    this.#options = options;
  }

  follow(etcd: SimEtcd): void {
    etcd.onRevision((entry) => this.#written(entry));
    etcd.onRestore(() => this.#writtenAt.clear());
  }

  #written(entry: EtcdEntry): void {
    if (!RUN_LEASE.test(entry.key)) return;
    const now = this.#options.now();
    const writtenAt = this.#writtenAt.get(entry.key);
    this.#writtenAt.set(entry.key, now);
    const writer = this.#options.writer();
    if (writtenAt === undefined || writer?.startsWith("ksvm") !== true || this.#options.isExempt?.(writer) === true) {
      return;
    }
    this.#judge(entry, writer, now - writtenAt);
  }

  #judge(entry: EtcdEntry, writer: string, stoodMs: number): void {
    const before = entry.before?.isDeleted === false ? (entry.before.object as unknown as Lease) : undefined;
    const holder = holderOf(before);
    if (holder === "" || holder.startsWith(`${writer}_`)) return;
    const after = entry.isDeleted ? undefined : (entry.object as unknown as Lease);
    const text = `${writer} wrote the Lease of ${holder} at revision ${entry.modRevision}`;
    if (!holderOf(after).startsWith(`${writer}_`)) {
      this.#options.report(`${text}, which it does not hold`);
      return;
    }
    const durationMs = (before?.spec?.leaseDurationSeconds ?? DURATION_SECONDS) * 1_000;
    if (stoodMs < durationMs) {
      this.#options.report(`${text}, ${Math.round(stoodMs)} ms after it was renewed`);
    }
  }
}
