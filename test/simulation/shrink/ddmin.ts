/**
 * Finds the first of several candidates that still fails.
 * @returns its index, or `undefined` where none does or the plays are used up
 */
export type FirstFailing<T> = (candidates: readonly T[]) => Promise<number | undefined>;

/**
 * Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002): leaves out half of the items,
 * then quarters, then eighths, until no single item can be left out.
 * @param fails finds the first list that still fails; the full list is known to
 */
export async function ddmin<T>(items: readonly T[], fails: FirstFailing<readonly T[]>): Promise<readonly T[]> {
  let left = items;
  let parts = 2;
  while (left.length > 0) {
    const size = Math.ceil(left.length / parts);
    const candidates = withoutEach(left, size);
    const found = await fails(candidates);
    if (found !== undefined) {
      left = candidates[found] ?? left;
      // The same size of a part again, since the rest of this round may go too.
      parts = Math.max(2, Math.ceil(left.length / size));
    } else if (size === 1) {
      return left;
    } else {
      parts = Math.min(left.length, parts * 2);
    }
  }
  return left;
}

/** All lists that lack one part of that size. The last parts come first: what comes late has often no part in a failure. */
function withoutEach<T>(items: readonly T[], size: number): readonly (readonly T[])[] {
  const starts = Array.from({ length: Math.ceil(items.length / size) }, (_, index) => index * size);
  return starts.toReversed().map((start) => [...items.slice(0, start), ...items.slice(start + size)]);
}
