import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import type { Client } from "../../kube/client.ts";
import { unlessForbidden } from "../../kube/errors.ts";
import { retry } from "../../kube/retry.ts";
import { findName } from "../../resources/find-name.ts";
import type { RunFormat } from "../flags/run-flags.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { exitCodeOf } from "../render/report-error.ts";
import { createReporter } from "../render/reporter.ts";

/** How names are looked up. */
export interface NameLookup {
  readonly client: Client;
  readonly signal: AbortSignal;
  /** Milliseconds for which a failure that may pass is waited for. @default those of `retry` */
  readonly forMs?: number;
}

/**
 * The full name of what a user names, see {@link findName}. A user who may not look it up is believed: the command
 * names the rights that it needs.
 * @throws as {@link findName}
 */
export async function fullNameOf({ client, ...limits }: NameLookup, given: string): Promise<string> {
  const find = (): Promise<string | undefined> => unlessForbidden(findName(client, given, limits.signal));
  return (await retry(client, find, limits)) ?? given;
}

/** Like {@link fullNameOf}, `undefined` where no resource has the name. */
export async function findFullName(lookup: NameLookup, given: string): Promise<string | undefined> {
  try {
    return await fullNameOf(lookup, given);
  } catch (error) {
    if (error instanceof KsvmError && error.code === "ResourceNotFound") {
      return undefined;
    }
    throw error;
  }
}

/** How {@link fullNames} looks names up, and shows what it does not find. */
export interface NamesLookup extends Omit<NameLookup, "signal"> {
  readonly format: RunFormat;
  /** Whether a resource that the cluster does not have is no error. @default false */
  readonly ignoreNotFound?: boolean;
}

/** The names of several resources, each once, and the exit code of those that were reported as errors. */
export async function fullNames(
  io: CliIo,
  { format, ignoreNotFound = false, ...lookup }: NamesLookup,
  given: readonly string[],
): Promise<{ readonly names: readonly string[]; readonly code: ExitCode }> {
  const names = new Set<string>();
  const codes: ExitCode[] = [EXIT.done];
  for (const name of new Set(given)) {
    try {
      names.add(await fullNameOf({ ...lookup, signal: io.signal }, name));
    } catch (error) {
      const reporter = createReporter(io, name, { format, clock: systemClock });
      if (ignoreNotFound && error instanceof KsvmError && error.code === "ResourceNotFound") {
        reporter.note("nothing to do: the cluster has no such resource");
        continue;
      }
      reporter.error(error);
      codes.push(exitCodeOf(error));
    }
  }
  return { names: [...names], code: worstOf(codes) };
}
