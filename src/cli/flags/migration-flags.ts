import { DEFAULT_SETTLE_MS } from "../../apiservers/settle.ts";
import { DEFAULT_MAX_IDLE_MS } from "../../migrator/attempts.ts";
import { DEFAULT_MAX_IN_FLIGHT } from "../../migrator/limiter.ts";
import { parseEndpoints } from "./address-parsers.ts";
import { type FlagTable, inGroup } from "./flag.ts";
import { duration, optional, repeated, value } from "./kinds.ts";
import { anyText, durationText, parseDuration, parseQps, wholeNumber } from "./parsers.ts";

/** `--apiserver-endpoints`, for every command that asks each API server. */
export const ENDPOINT_FLAGS = {
  "apiserver-endpoints": optional(parseEndpoints, {
    placeholder: "urls",
    help: "comma-separated list with the URL of each API server; if not set, ksvm finds them",
  }),
} satisfies FlagTable;

/** An API server takes 600 requests at the same time, from all of its clients. */
const MAX_IN_FLIGHT = 256;

/** The flags of every command that carries out migrations. */
export const MIGRATION_FLAGS = inGroup("advanced", {
  settle: duration({
    default: DEFAULT_SETTLE_MS,
    help:
      "time to wait for writes in an earlier version, once every API server has observed the last change; must be " +
      "half a minute longer than the --request-timeout of the API servers, and " +
      `${durationText(DEFAULT_SETTLE_MS)} or more`,
  }),
  "unsafe-settle": optional(parseDuration, {
    placeholder: "duration",
    help:
      "wait for less than --settle may say. Data is lost if a request of before is still under way after it: an object " +
      "is then stored in a version that storedVersions no longer lists",
  }),
  "max-in-flight": value(wholeNumber(1, MAX_IN_FLIGHT), {
    placeholder: "n",
    default: DEFAULT_MAX_IN_FLIGHT,
    help: "maximum number of concurrent requests; a run begins with 4 and adapts to how long the API server takes",
  }),
  "max-qps": value(parseQps, {
    placeholder: "n",
    default: Number.POSITIVE_INFINITY,
    defaultText: "0",
    help: "maximum number of objects per second; 0 means no limit",
  }),
  ...ENDPOINT_FLAGS,
  "ignore-apiserver": repeated(anyText, {
    placeholder: "identity",
    help:
      "name of an identity Lease in kube-system whose API server is gone; can be repeated. Data is lost if that API " +
      "server still runs: it may write an old version after storedVersions was pruned",
  }),
  "max-idle": duration({
    default: DEFAULT_MAX_IDLE_MS,
    help: "maximum time without progress before failing, and before going on beside Kubernetes' own migrator",
  }),
}) satisfies FlagTable;
