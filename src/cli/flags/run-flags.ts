import type { FlagTable } from "./flag.ts";
import { choice, toggle } from "./kinds.ts";

/** How a run is shown while it lasts. */
export const RUN_FORMATS = ["text", "json"] as const;

/** `--output`, for every command that shows its runs while they last. */
export const RUN_OUTPUT_FLAG = {
  output: choice(RUN_FORMATS, {
    short: "o",
    placeholder: "format",
    default: "text",
    help: "output format; json is one JSON document per line and event",
  }),
} satisfies FlagTable;

/** `--verify`, for commands that rewrite. */
export const VERIFY_FLAG = {
  verify: toggle({
    help: "when all is done, verify each resource that was completed, as ksvm verify does; exit code 3 if an object was not current",
  }),
} satisfies FlagTable;
