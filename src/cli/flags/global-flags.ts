import { LOG_FORMATS, LOG_LEVELS } from "../../observability/logger.ts";
import type { FlagsOf, FlagTable } from "./flag.ts";
import { choice, optional } from "./kinds.ts";
import { anyText } from "./parsers.ts";

const CONNECTION_FLAGS = {
  kubeconfig: optional(anyText, {
    placeholder: "path",
    help: "kubeconfig file; if not set, KUBECONFIG, then ~/.kube/config, then the service account of the pod",
  }),
  context: optional(anyText, { placeholder: "name", help: "kubeconfig context; if not set, the current context" }),
} satisfies FlagTable;

const LOG_FLAGS = {
  "log-level": choice(LOG_LEVELS, { placeholder: "level", default: "warn", help: "lowest level to log to stderr" }),
  "log-format": choice(LOG_FORMATS, { placeholder: "format", default: "text", help: "format of the log" }),
} satisfies FlagTable;

/** The flags of every command. */
export const GLOBAL_FLAGS = { ...CONNECTION_FLAGS, ...LOG_FLAGS } satisfies FlagTable;

/** The flags by which a command finds its cluster. */
export type ConnectionFlags = FlagsOf<typeof CONNECTION_FLAGS>;

/** The flags by which a command logs. */
export type LogFlags = FlagsOf<typeof LOG_FLAGS>;
