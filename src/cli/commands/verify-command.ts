import { EncryptionEvidence } from "../../apiservers/encryption-evidence.ts";
import { SeenServers } from "../../apiservers/seen-servers.ts";
import { systemClock } from "../../clock.ts";
import type { FlagTable } from "../flags/flag.ts";
import { toggle } from "../flags/kinds.ts";
import { anyNames } from "../flags/operands.ts";
import { worstOf } from "../render/exit-codes.ts";
import { chooseResources, requireOneChoice } from "../shared/choose-resources.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { loggerOf } from "../shared/logger-of.ts";
import { REENCRYPT_FLAGS, reencryptSettingsOf } from "../flags/reencrypt-flags.ts";
import { Verifications } from "./verifications.ts";

const { "assume-config-rolled-out": _assume, resume: _resume, verify: _verify, ...SHARED_FLAGS } = REENCRYPT_FLAGS;

const VERIFY_FLAGS = {
  ...SHARED_FLAGS,
  all: toggle({ help: "verify the objects of every served resource, built-in and custom" }),
} satisfies FlagTable;

const WORDS = { verb: "verify", risk: "are not current" };

/** `ksvm verify`: shows that every object is stored as the API servers store it now, and names those that were not. */
export const VERIFY_COMMAND = defineCommand({
  path: "verify",
  description:
    "Write every object as it is through each API server: what is current stays as it is, and what is not is named and repaired.",
  examples: ["ksvm verify widgets.example.com", "ksvm verify --all -o json"],
  operands: anyNames("plural.group of a CRD or a built-in resource"),
  flags: VERIFY_FLAGS,
  async run(io, flags, given) {
    requireOneChoice(flags, given, WORDS);
    const logger = loggerOf(io, flags);
    const seen = new SeenServers(systemClock);
    const connection = await connect(flags, io.signal, seen.observer);
    try {
      const chosen = await chooseResources(io, connection, { flags, given, words: WORDS });
      const verifications = new Verifications({
        io,
        format: flags.output,
        connection,
        logger,
        seen,
        settings: reencryptSettingsOf(flags),
        encryption: new EncryptionEvidence({
          isAssumed: false,
          isOptional: true,
          expectedConfig: flags.expectConfig,
          expectedEncoding: flags.expectEncoding,
        }),
      });
      return worstOf([chosen.code, await verifications.run(chosen)]);
    } finally {
      await connection.close();
    }
  },
});
