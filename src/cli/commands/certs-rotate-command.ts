import { defineCommand } from "../shared/command.ts";
import { toggle } from "../flags/kinds.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { KEEP_FLAGS, keepCertificates } from "./keep-certificates.ts";

/** `ksvm certs rotate`: takes a rotation to its end. */
export const CERTS_ROTATE_COMMAND = defineCommand({
  path: "certs rotate",
  description: "Complete a rotation that is due, and wait for API servers and replicas where necessary.",
  examples: ["ksvm certs rotate"],
  operands: NO_OPERANDS,
  flags: {
    now: toggle({ help: "rotate the CA and the serving certificate even if nothing is due" }),
    ...KEEP_FLAGS,
  },
  run: (io, flags) => keepCertificates(io, flags, { rotateNow: flags.now, wait: true }),
});
