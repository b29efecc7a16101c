import { KsvmError } from "../../errors.ts";
import type { Client } from "../../kube/client.ts";
import { storedResources } from "../../resources/discover.ts";
import { EXIT, type ExitCode } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine } from "../render/printable.ts";
import { fullNames } from "./full-names.ts";
import type { RunFormat } from "../flags/run-flags.ts";
import type { Connection } from "./connect.ts";

/** The flags that say which resources a command is about, and how they are looked for. */
export interface ChoiceFlags {
  readonly all: boolean;
  readonly output: RunFormat;
  readonly maxIdleMs: number;
}

/** What a command does with its resources, for messages. */
export interface ChoiceWords {
  /** As in "Cannot tell what to …". */
  readonly verb: string;
  /** What objects of a group may do that cannot be read. */
  readonly risk: string;
}

/** The resources that a command is about. */
export interface Chosen {
  readonly names: readonly string[];
  /** What finding them comes to by itself. */
  readonly code: ExitCode;
  /** Finds every served resource once more, of which some may have come since; missing where a user named resources. */
  readonly listAgain?: () => Promise<Chosen>;
}

/**
 * Checks that a user either names resources or asks for all of them.
 * @throws {KsvmError} Usage
 */
export function requireOneChoice(
  { all }: Pick<ChoiceFlags, "all">,
  given: readonly string[],
  { verb }: ChoiceWords,
): void {
  if (all === given.length > 0) {
    throw new KsvmError("Usage", `Cannot tell what to ${verb}: name resources, or pass --all without names`);
  }
}

/**
 * Finds the resources that a user names as {@link fullNames} takes them, or every stored one.
 * @throws {ApiError}
 */
export function chooseResources(
  io: CliIo,
  { kube: client }: Connection,
  {
    flags,
    given,
    words,
  }: { readonly flags: ChoiceFlags; readonly given: readonly string[]; readonly words: ChoiceWords },
): Promise<Chosen> {
  const { all, maxIdleMs, output: format } = flags;
  return all ? everyResource(io, client, words, new Set()) : fullNames(io, { client, forMs: maxIdleMs, format }, given);
}

/** Every served resource that is stored. Says which are left out, and why, unless it was told before. */
async function everyResource(io: CliIo, client: Client, words: ChoiceWords, told: Set<string>): Promise<Chosen> {
  const { leftOut, names, unread } = await storedResources(client, io.signal);
  const notes = leftOut.map(({ resource, reason }) => `note: ${oneLine(`${resource} is left out: ${reason}`)}`);
  const warnings = unread.map(
    ({ resource, reason }) =>
      `warning: ${oneLine(`${resource} is left out, and may have objects that ${words.risk}: ${reason}`)}`,
  );
  for (const line of [...notes, ...warnings].filter((one) => !told.has(one))) {
    told.add(line);
    io.stderr.write(`${line}\n`);
  }
  const code = unread.length > 0 ? EXIT.incomplete : EXIT.done;
  return { names, code, listAgain: () => everyResource(io, client, words, told) };
}
