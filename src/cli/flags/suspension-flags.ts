import { SYSTEM_NAMESPACE } from "../../api/migration.ts";
import type { FlagTable } from "./flag.ts";
import { value } from "./kinds.ts";
import { maybeName } from "./operands.ts";
import { anyText } from "./parsers.ts";

/** The flags that `ksvm suspend` and `ksvm resume` share. */
export const SUSPENSION_FLAGS = {
  namespace: value(anyText, {
    placeholder: "namespace",
    default: SYSTEM_NAMESPACE,
    help: "namespace of the controller",
  }),
} satisfies FlagTable;

/** Which migrations are suspended or resumed. */
export const SUSPENSION_OPERANDS = maybeName(
  "a migration, or a resource (plural.group): all unfinished migrations of it",
);
