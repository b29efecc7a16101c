/**
 * The default of `--shutdown-drain`, in milliseconds: kube-proxy and load balancers learn of an endpoint that is not ready within
 * one or two seconds; the rest is for slow ones.
 */
export const DEFAULT_DRAIN_MS = 10_000;

/** 5 seconds, which is the webhook's own timeout: after that no API server waits for the answer. */
export const DEFAULT_FINISH_MS = 5_000;
