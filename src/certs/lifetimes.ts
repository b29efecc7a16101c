/** Certificates are valid from this many milliseconds before `now`, for machines whose clocks lag behind. */
export const BACKDATE_MS = 5 * 60_000;

const DAY_MS = 86_400_000;

/** The default of `--ca-lifetime`, in milliseconds: a year. */
export const DEFAULT_CA_LIFETIME_MS = 365 * DAY_MS;

/** The default of `--serving-lifetime`, in milliseconds: 90 days, which fit into the last third of the CA's year. */
export const DEFAULT_SERVING_LIFETIME_MS = 90 * DAY_MS;
