import { isNewer } from "./resource-version.ts";

/**
 * Which answers about one object are to be taken, where a watch and reads overtake each other: none that is older than
 * what was taken before. A watch that is opened again shows what its API server has in its cache, which may be behind
 * another one's.
 *
 * One case is different: a read from etcd that was sent after a newer resourceVersion had been taken shows the present
 * all the same. Where it is older, etcd was restored from a backup, and resourceVersions begin again at the backup's.
 */
export class NewestSeen {
  #resourceVersion: string | undefined;

  /** The newest resourceVersion that was taken; to be read before a request is sent. */
  get resourceVersion(): string | undefined {
    return this.#resourceVersion;
  }

  /**
   * Whether to take an answer, which is then the newest.
   *
   * @param resourceVersion of the object in the answer
   * @param sentAfter for a read from etcd, {@link resourceVersion} as it was when the request was sent. @default it is
   *   no such read
   */
  take(resourceVersion: string | undefined, sentAfter?: string): boolean {
    if (resourceVersion === undefined) {
      return true;
    }
    const newest = this.#resourceVersion;
    if (newest !== undefined && isNewer(newest, resourceVersion) && newest !== sentAfter) {
      return false;
    }
    this.#resourceVersion = resourceVersion;
    return true;
  }
}
