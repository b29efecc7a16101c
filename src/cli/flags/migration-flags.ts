import { DEFAULT_MAX_IN_FLIGHT, MAX_IN_FLIGHT } from "../../old/retry/limiter.ts";
import { PRIORITIES } from "../../old/migrator/assemble-run.ts";
import { DEFAULT_MAX_QPS } from "../../old/retry/pacer.ts";
import { DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE } from "../../old/migrator/rewrite/page-size.ts";
import { DEFAULT_MAX_IDLE_MS, DEFAULT_WEBHOOK_WAIT_MS } from "../../old/retry/retrier.ts";
import { DEFAULT_CONVERGENCE_TIMEOUT_MS } from "../../old/apiservers/converge.ts";
import { DEFAULT_GUARD, GUARD_CHOICES } from "../../old/freeze/guard.ts";
import { DEFAULT_PROOF_TIMEOUT_MS } from "../../old/freeze/freeze-proof.ts";
import { DEFAULT_MAX_FREEZE_IDLE_MS } from "../../old/migrator/run-until-done.ts";
import { DEFAULT_SETTLE_MS, DEFAULT_SHUTDOWN_DELAY_MS } from "../../old/apiservers/settle.ts";
import { parseEndpoints } from "./address-parsers.ts";
import { type FlagTable, inGroup } from "./flag.ts";
import { choice, duration, optional, repeated, value } from "./kinds.ts";
import { anyText, parseQps, wholeNumber } from "./parsers.ts";

/** `--apiserver-endpoints`, for every command that asks each API server. */
export const ENDPOINT_FLAGS = {
  "apiserver-endpoints": optional(parseEndpoints, {
    placeholder: "urls",
    help: "comma-separated list with the URL of each API server; if not set, ksvm finds them",
  }),
} satisfies FlagTable;

const TUNING_FLAGS = {
  settle: duration({
    default: DEFAULT_SETTLE_MS,
    help:
      "minimum time since the last change of the storage version; must be longer than the --request-timeout of the " +
      "API servers",
  }),
  "shutdown-delay": duration({
    default: DEFAULT_SHUTDOWN_DELAY_MS,
    help:
      "how long an API server goes on taking requests after it has begun to end: the --shutdown-delay-duration of the " +
      "kube-apiserver; where one may have left, ksvm waits for that time and --settle",
  }),
  "page-size": value(wholeNumber(1, MAX_PAGE_SIZE), {
    placeholder: "n",
    default: DEFAULT_PAGE_SIZE,
    help: "maximum number of objects in a page; pages are smaller if objects are large or a page takes too long",
  }),
  "max-in-flight": value(wholeNumber(1, MAX_IN_FLIGHT), {
    placeholder: "n",
    default: DEFAULT_MAX_IN_FLIGHT,
    help:
      "maximum number of concurrent requests; a run begins with 4 and adapts to the requests that the API server " +
      "finishes in a second, to its errors, and to how long other clients wait",
  }),
  "max-qps": value(parseQps, {
    placeholder: "n",
    default: DEFAULT_MAX_QPS,
    defaultText: "0",
    help: "maximum number of requests per second; 0 means no limit",
  }),
  "proof-timeout": duration({
    default: DEFAULT_PROOF_TIMEOUT_MS,
    help: "maximum time for the guard to take effect on every API server",
  }),
  "convergence-timeout": duration({
    default: DEFAULT_CONVERGENCE_TIMEOUT_MS,
    help: "maximum time for the API servers to follow a change of the storage version",
  }),
  convergence: choice(["auto", "strict"], {
    placeholder: "mode",
    default: "auto",
    help: "strict fails instead of sampling API servers that cannot be reached one by one",
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
    help: "maximum time without progress before failing",
  }),
  "webhook-wait": duration({
    default: DEFAULT_WEBHOOK_WAIT_MS,
    help: "maximum time without progress before failing if the cause is a webhook of another client",
  }),
  "max-freeze-idle": duration({
    default: DEFAULT_MAX_FREEZE_IDLE_MS,
    help: "maximum time in which requests fail without progress before lifting the freeze; the run freezes again when it can continue",
  }),
} satisfies FlagTable;

/** The flags of every command that carries out migrations. */
export const MIGRATION_FLAGS = {
  guard: choice(GUARD_CHOICES, {
    placeholder: "guard",
    default: DEFAULT_GUARD,
    help: "what enforces the freeze; auto is the webhook if it is installed, otherwise a policy",
  }),
  priority: choice(PRIORITIES, {
    placeholder: "priority",
    default: "background",
    help:
      "background slows down when other clients have to wait; fast uses all that the API servers give within " +
      "--max-in-flight",
  }),
  ...inGroup("advanced", TUNING_FLAGS),
} satisfies FlagTable;
