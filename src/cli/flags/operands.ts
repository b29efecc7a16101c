import { KsvmError } from "../../errors.ts";

/** The arguments of a command that are not flags. */
export interface Operands<Value> {
  /** As `--help` shows them, such as `[name...]`. @default the command takes none */
  readonly syntax?: string;
  readonly help?: string;
  /** @throws {KsvmError} Usage if one is missing. */
  read(given: readonly string[]): Value;
}

/** No arguments. */
export const NO_OPERANDS: Operands<undefined> = { read: () => undefined };

/** Any number of names. */
export function anyNames(help: string): Operands<readonly string[]> {
  return { syntax: "[name...]", help, read: (given) => given };
}

/** One name or none. */
export function maybeName(help: string): Operands<string | undefined> {
  return { syntax: "[name]", help, read: ([name]) => name };
}

/** Exactly one name. */
export function oneName(help: string): Operands<string> {
  return {
    syntax: "<name>",
    help,
    read: ([name]) => {
      if (name === undefined) {
        throw new KsvmError("Usage", "Cannot run this command without a name");
      }
      return name;
    },
  };
}
