import { type ApiServers, fingerprintOf } from "./api-servers.ts";

/** Many more CRDs than a cluster has. */
const MAX_CHANGES = 10_000;

/** Which API servers there are, and how many had come and gone by then. */
export function apiServersAt(apiServers: ApiServers, arrivals: number): string {
  return `${fingerprintOf(apiServers)} arrivals=${arrivals}`;
}

/**
 * The changes of CRDs whose late writes this process has waited for, to the end. Such a wait holds for a later run: every API server that
 * lives followed the change before it began and answered all the time, so a write of an older version that was under way has
 * ended, and as long as the generation of the CRD is the same none has begun since. An API server that joins reads the CRD as it is.
 */
export class SettledChanges {
  /** By change: which API servers there were, and from when on late writes of it are to be waited for. */
  readonly #settled = new Map<string, { readonly apiServers: string; readonly from: number }>();

  /**
   * Notes a wait that came to its end.
   * @param key as `storageChangeOf()` makes it
   * @param apiServers which ones there were all the time, as `apiServersAt()` makes it
   * @param from where one of them may have gone on to write an older version until then: from when on late writes are to be waited for, on the
   *   monotonic clock, in milliseconds. @default they were
   */
  note(key: string, apiServers: string, from = Number.NEGATIVE_INFINITY): void {
    this.#settled.delete(key);
    this.#settled.set(key, { apiServers, from });
    const [oldest = ""] = this.#settled.keys();
    if (this.#settled.size > MAX_CHANGES) {
      this.#settled.delete(oldest);
    }
  }

  /** Whether the same API servers were waited for after this change. */
  has(key: string, apiServers: string): boolean {
    return this.from(key, apiServers) !== undefined;
  }

  /** What {@link note} was told last of this change and these API servers; `undefined` where nothing was. */
  from(key: string, apiServers: string): number | undefined {
    const settled = this.#settled.get(key);
    return settled?.apiServers === apiServers ? settled.from : undefined;
  }
}
