import { EncryptionEvidence } from "../../old/apiservers/encryption-evidence.ts";
import { SeenServers } from "../../old/apiservers/seen-servers.ts";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { anyNames } from "../flags/operands.ts";
import { REENCRYPT_FLAGS } from "../flags/reencrypt-flags.ts";
import { worstOf } from "../render/exit-codes.ts";
import { chooseResources, requireOneChoice } from "../shared/choose-resources.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { loggerOf } from "../shared/logger-of.ts";
import { Reencryption } from "./reencryption.ts";

const WORDS = { verb: "re-encrypt", risk: "need the old key" };

/** `ksvm reencrypt`: rewrites every object of the resources, with evidence that every API server uses the same key. */
export const REENCRYPT_COMMAND = defineCommand({
  path: "reencrypt",
  description:
    "Rewrite every object after a change of the encryption at rest, once every API server is shown to use the same " +
    "configuration and key.",
  examples: [
    "ksvm reencrypt secrets configmaps",
    'ksvm reencrypt --all --expect-config "$(sha256sum < encryption.yaml | cut -d " " -f 1)"',
  ],
  operands: anyNames("plural.group of a CRD or a built-in resource"),
  flags: REENCRYPT_FLAGS,
  async run(io, flags, given) {
    requireOneChoice(flags, given, WORDS);
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
    const seen = new SeenServers(systemClock);
    const connection = await connect(flags, io.signal, seen.observer);
    try {
      const chosen = await chooseResources(io, connection, { flags, given, words: WORDS });
      const encryption = new EncryptionEvidence({
        isAssumed: flags.assumeConfigRolledOut,
        expectedConfig: flags.expectConfig,
      });
      const work = new Reencryption({
        io,
        flags,
        format: flags.output,
        connection,
        logger,
        seen,
        encryption,
      });
      return worstOf([chosen.code, await work.run(chosen)]);
    } finally {
      await connection.close();
    }
  },
});
