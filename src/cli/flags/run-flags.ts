import { DEFAULT_LEASE_NAMESPACE } from "../../migrator/run-lease.ts";
import type { FlagTable } from "./flag.ts";
import { choice, value } from "./kinds.ts";
import { anyText } from "./parsers.ts";

/** How a run is shown while it lasts. */
const RUN_FORMATS = ["text", "json"] as const;
/** One of {@link RUN_FORMATS}. */
export type RunFormat = (typeof RUN_FORMATS)[number];

/** `--output`, for every command that shows its runs while they last. */
export const RUN_OUTPUT_FLAG = {
  output: choice(RUN_FORMATS, {
    short: "o",
    placeholder: "format",
    default: "text",
    help: "output format; json is one JSON document per line and event",
  }),
} satisfies FlagTable;

/** What one result is printed as. */
const RESULT_FORMATS = ["table", "json", "yaml"] as const;
/** One of the values of `--output` of commands that print one result. */
export type ResultFormat = (typeof RESULT_FORMATS)[number];

/** `--output`, for every command that prints one result. */
export const RESULT_OUTPUT_FLAG = {
  output: choice(RESULT_FORMATS, { short: "o", placeholder: "format", default: "table", help: "output format" }),
} satisfies FlagTable;

/** `--lease-namespace`, for every command that runs. */
export const LEASE_NAMESPACE_FLAG = {
  "lease-namespace": value(anyText, {
    placeholder: "namespace",
    default: DEFAULT_LEASE_NAMESPACE,
    help: "namespace of the Lease of each run",
  }),
} satisfies FlagTable;
