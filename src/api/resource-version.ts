/**
 * Compares two resourceVersions of one resource as integers: negative where `a` is older, 0 where equal, positive where
 * newer. `undefined` where one of them is not an integer, as some aggregated APIs have it: nothing follows then.
 *
 * https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
 */
export function compareResourceVersions(a: string, b: string): number | undefined {
  if (!isInteger(a) || !isInteger(b)) {
    return undefined;
  }
  if (a.length !== b.length) {
    return a.length - b.length;
  }
  if (a === b) {
    return 0;
  }
  return a < b ? -1 : 1;
}

/** Whether `a` is known to be newer than `b`. */
export function isNewer(a: string, b: string): boolean {
  const order = compareResourceVersions(a, b);
  return order !== undefined && order > 0;
}

function isInteger(resourceVersion: string): boolean {
  return /^(0|[1-9]\d*)$/.test(resourceVersion);
}
