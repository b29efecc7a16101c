import { DEFAULT_LEASE_NAMESPACE } from "../../old/lease/run-lease-ref.ts";
import { FIELDS_MODES } from "../../old/migrator/run-context.ts";
import type { FlagTable } from "./flag.ts";
import { choice, value } from "./kinds.ts";
import { anyText } from "./parsers.ts";

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

/** What objects can be written through. */
const WRITE_VIAS = ["resource", "status"] as const;
/** One of {@link WRITE_VIAS}. */
export type WriteVia = (typeof WRITE_VIAS)[number];

/** `--via`, for commands that migrate CRDs, and for their roles. */
export const VIA_FLAG = {
  via: choice(WRITE_VIAS, {
    placeholder: "path",
    default: "resource",
    help:
      "what objects are written through; status is the status subresource, for objects whose spec is rejected by validation or " +
      "admission that does not apply to it",
  }),
} satisfies FlagTable;

/** `--managed-fields`, for commands that migrate CRDs. */
export const MANAGED_FIELDS_FLAG = {
  "managed-fields": choice(FIELDS_MODES, {
    placeholder: "mode",
    default: "auto",
    help:
      "what becomes of managedFields that name another version than the storage version; auto has them name the storage version, so that " +
      "server-side apply works once the other version is removed, unless a webhook converts the objects; convert does so for a clean CRD, too",
  }),
} satisfies FlagTable;
