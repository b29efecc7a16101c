import { EncryptionEvidence } from "../../apiservers/encryption-evidence.ts";
import { SeenServers } from "../../apiservers/seen-servers.ts";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { storedResources } from "../../resources/stored-resources.ts";
import { Retrier } from "../../retry/retrier.ts";
import { anyNames } from "../flags/operands.ts";
import { REENCRYPT_FLAGS } from "../flags/reencrypt-flags.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine } from "../render/printable.ts";
import { defineCommand } from "../shared/command.ts";
import { type Connection, connect } from "../shared/connect.ts";
import { loggerOf } from "../shared/logger-of.ts";
import { Reencryption } from "./reencryption.ts";

/** `ksvm reencrypt`: rewrites every object of the resources, with evidence that every API server uses the same key. */
export const REENCRYPT_COMMAND = defineCommand({
  path: "reencrypt",
  description:
    "Rewrite every object after a change of the encryption at rest, once every API server is shown to use the same " +
    "configuration and key.",
  operands: anyNames("plural.group of a CRD or a built-in resource"),
  flags: REENCRYPT_FLAGS,
  async run(io, flags, given) {
    if (flags.all === given.length > 0) {
      throw new KsvmError("Usage", "Cannot tell what to re-encrypt: name resources, or pass --all without names");
    }
    if (flags.assumeConfigRolledOut && flags.expectConfig !== undefined) {
      throw new KsvmError(
        "Usage",
        "Cannot expect a configuration of API servers that are not asked: pass one of both flags",
      );
    }
    if (flags.assumeConfigRolledOut) {
      io.stderr.write(
        "warning: no API server is asked which encryption configuration it uses: keep the old key until you have seen " +
          "in etcd that no object needs it\n",
      );
    }
    const logger = loggerOf(io, flags);
    const connection = await connect(flags, io.signal);
    try {
      const { names, code } = flags.all
        ? await everyResource(io, connection, { ...flags, risk: "need the old key" })
        : namedOnes(given);
      const { assumeConfigRolledOut: isAssumed, expectConfig: expectedConfig } = flags;
      const encryption = new EncryptionEvidence({ isAssumed, expectedConfig });
      const work = new Reencryption({
        io,
        flags,
        format: flags.output,
        connection,
        logger,
        seen: new SeenServers(systemClock),
        encryption,
      });
      return worstOf([code, await work.run(names)]);
    } finally {
      await connection.close();
    }
  },
});

/** The resources that a command is about. */
export interface Chosen {
  readonly names: readonly string[];
  /** What finding them comes to by itself. */
  readonly code: ExitCode;
}

/** What the user names, each once. */
export function namedOnes(given: readonly string[]): Chosen {
  return { names: [...new Set(given)], code: EXIT.done };
}

/** How every resource is looked for. */
export interface EveryResourceOptions {
  readonly maxIdleMs: number;
  readonly webhookWaitMs: number;
  /** What objects of a group may do that cannot be read, for a warning. */
  readonly risk: string;
}

/** Every stored resource. Says which are left out, and why. */
export async function everyResource(
  { signal, stderr }: CliIo,
  { client }: Connection,
  { maxIdleMs, risk, webhookWaitMs }: EveryResourceOptions,
): Promise<Chosen> {
  const retrier = new Retrier({ clock: systemClock, random: Math.random, maxIdleMs, webhookWaitMs });
  const { leftOut, names, unread } = await storedResources({ client, clock: systemClock, retrier, signal });
  for (const { resource, reason } of leftOut) {
    stderr.write(`note: ${oneLine(`${resource} is left out: ${reason}`)}\n`);
  }
  for (const { resource, reason } of unread) {
    stderr.write(`warning: ${oneLine(`${resource} is left out, and may have objects that ${risk}: ${reason}`)}\n`);
  }
  return { names, code: unread.length > 0 ? EXIT.incomplete : EXIT.done };
}
