import { compareResourceVersions, isNewer } from "../../api/resource-version.ts";

/**
 * So often may the watermark go back: each time stands for an etcd that was restored from a backup. An endpoint that does so
 * more often answers nonsense, and no write counts from then on.
 */
const MAX_RESTORES = 3;

/**
 * Tells the first write of an object from those that repeat it, without a memory of names: an object was last written before
 * the lowest watermark of all attempts, and its write takes it beyond. So each object counts once; one that was created since
 * never counts.
 *
 * The lowest watermark, not the first one: where etcd was restored from a backup without `--bump-revision`, resourceVersions
 * go back, and all writes would stay below the watermark of before. Then each object counts once more. With
 * `--bump-revision` they go forward, and the lowest watermark is still that of before.
 *
 * https://etcd.io/docs/v3.6/op-guide/recovery/#restoring-with-revision-bump
 */
export class FirstWrite {
  #lowest: string | undefined;
  #restores = 0;

  /**
   * Whether a write was the first one of its object.
   * @param written the resourceVersion that the object was listed with; `undefined` where it was not written
   * @param watermark of the attempt
   * @returns `undefined` where resourceVersions cannot be compared: nothing follows then
   */
  isFirst(written: string | undefined, watermark: string): boolean | undefined {
    const lowest = this.#lowestWith(watermark);
    const order = written === undefined ? 1 : compareResourceVersions(written, lowest);
    return order === undefined ? undefined : order <= 0;
  }

  #lowestWith(watermark: string): string {
    this.#lowest ??= watermark;
    if (isNewer(this.#lowest, watermark)) {
      this.#restores++;
      this.#lowest = this.#restores > MAX_RESTORES ? "0" : watermark;
    }
    return this.#lowest;
  }
}
