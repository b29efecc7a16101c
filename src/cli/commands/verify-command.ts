import { EncryptionEvidence } from "../../apiservers/encryption-evidence.ts";
import { SeenServers } from "../../apiservers/seen-servers.ts";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { Retrier } from "../../retry/retrier.ts";
import type { FlagsOf, FlagTable } from "../flags/flag.ts";
import { toggle } from "../flags/kinds.ts";
import { anyNames } from "../flags/operands.ts";
import { worstOf } from "../render/exit-codes.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { fullNames } from "../shared/full-names.ts";
import { loggerOf } from "../shared/logger-of.ts";
import { everyResource } from "./reencrypt-command.ts";
import { REENCRYPT_FLAGS, reencryptSettingsOf } from "../flags/reencrypt-flags.ts";
import { Verifications } from "./verifications.ts";

const { "assume-config-rolled-out": _assume, verify: _verify, ...SHARED_FLAGS } = REENCRYPT_FLAGS;

const VERIFY_FLAGS = {
  ...SHARED_FLAGS,
  all: toggle({ help: "verify the objects of every stored resource, built-in and custom" }),
} satisfies FlagTable;

/** `ksvm verify`: shows that every object is stored as the API servers store it now, and names those that were not. */
export const VERIFY_COMMAND = defineCommand({
  path: "verify",
  description:
    "Write every object as it is through each API server: what is current stays as it is, and what is not is named and repaired.",
  operands: anyNames("plural.group of a CRD or a built-in resource"),
  flags: VERIFY_FLAGS,
  async run(io, flags, given) {
    if (flags.all === given.length > 0) {
      throw new KsvmError("Usage", "Cannot tell what to verify: name resources, or pass --all without names");
    }
    const logger = loggerOf(io, flags);
    const connection = await connect(flags, io.signal);
    try {
      const { names, code } = flags.all
        ? await everyResource(io, connection, { ...flags, risk: "are not current" })
        : await fullNames(io, { client: connection.client, retrier: retrierOf(flags), format: flags.output }, given);
      const verifications = new Verifications({
        io,
        format: flags.output,
        connection,
        logger,
        seen: new SeenServers(systemClock),
        settings: reencryptSettingsOf(flags),
        encryption: new EncryptionEvidence({
          isAssumed: false,
          isOptional: true,
          expectedConfig: flags.expectConfig,
        }),
      });
      return worstOf([code, await verifications.run(names)]);
    } finally {
      await connection.close();
    }
  },
});

function retrierOf({ maxIdleMs, webhookWaitMs }: FlagsOf<typeof VERIFY_FLAGS>): Retrier {
  return new Retrier({ clock: systemClock, random: Math.random, maxIdleMs, webhookWaitMs });
}
