import { LOG_FORMATS, LOG_LEVELS } from "../../observability/logger.ts";
import { type FlagsOf, type FlagTable, inGroup } from "./flag.ts";
import { choice, optional, repeated } from "./kinds.ts";
import { parseServer } from "./address-parsers.ts";
import { someText, wholeNumber } from "./parsers.ts";

const CONNECTION_FLAGS = {
  kubeconfig: optional(someText, {
    placeholder: "path",
    help: "kubeconfig file; if not set, KUBECONFIG, then ~/.kube/config, then the service account of the pod",
  }),
  context: optional(someText, { placeholder: "name", help: "kubeconfig context; if not set, the current context" }),
  server: optional(parseServer, {
    short: "s",
    placeholder: "url",
    help: "URL of the API server; if not set, that of the context",
  }),
  as: optional(someText, { placeholder: "user", help: "user to impersonate, who may be a service account" }),
  "as-group": repeated(someText, { placeholder: "group", help: "group to impersonate; can be repeated" }),
  "as-uid": optional(someText, { placeholder: "uid", help: "UID to impersonate" }),
} satisfies FlagTable;

const LOG_FLAGS = {
  "log-level": choice(LOG_LEVELS, { placeholder: "level", default: "warn", help: "lowest level to log to stderr" }),
  "log-format": choice(LOG_FORMATS, { placeholder: "format", default: "text", help: "format of the log" }),
  v: optional(wholeNumber(0, 10), {
    short: "v",
    placeholder: "n",
    help: "verbosity as of kubectl: from 1 on the log level is info, from 4 on debug, from 8 on trace",
  }),
} satisfies FlagTable;

/** The flags of every command. */
export const GLOBAL_FLAGS = inGroup("global", { ...CONNECTION_FLAGS, ...LOG_FLAGS }) satisfies FlagTable;

/** The flags by which a command finds its cluster. */
export type ConnectionFlags = FlagsOf<typeof CONNECTION_FLAGS>;

/** The flags by which a command logs. */
export type LogFlags = FlagsOf<typeof LOG_FLAGS>;

/** From which verbosity on a log has which level. */
const VERBOSE_LEVELS = [
  [8, "trace"],
  [4, "debug"],
  [1, "info"],
] as const;

/** The flags with the log level that `-v` stands for, where it is given. */
export function withVerbosity<Flags extends LogFlags>(flags: Flags): Flags {
  const level = VERBOSE_LEVELS.find(([from]) => (flags.v ?? 0) >= from)?.[1];
  return level === undefined ? flags : { ...flags, logLevel: level };
}
