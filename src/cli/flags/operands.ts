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
  return { syntax: "[name...]", help, read: (given) => given.map(nameIn) };
}

/** One name or none. */
export function maybeName(help: string): Operands<string | undefined> {
  return { syntax: "[name]", help, read: ([name]) => (name === undefined ? undefined : nameIn(name)) };
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
      return nameIn(name);
    },
  };
}

/**
 * @throws {KsvmError} Usage for what names no resource: a subresource as in `pods/log`, or an object as in `pods/a`.
 */
function nameIn(given: string): string {
  const [resource = ""] = given.split("/");
  if (resource !== given) {
    const hint =
      resource === "" ? "" : `; to name the resource, leave out ${JSON.stringify(given.slice(resource.length))}`;
    throw new KsvmError("Usage", `Cannot use "${given}": it is a subresource or an object, not a resource${hint}`);
  }
  return given;
}
