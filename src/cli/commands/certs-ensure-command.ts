import { defineCommand } from "../shared/command.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { KEEP_FLAGS, keepCertificates } from "./keep-certificates.ts";

/** `ksvm certs ensure`: takes the steps that are due now. */
export const CERTS_ENSURE_COMMAND = defineCommand({
  path: "certs ensure",
  description: "Create missing certificates, renew those that are due, and take the next steps of a rotation.",
  examples: ["ksvm certs ensure"],
  operands: NO_OPERANDS,
  flags: KEEP_FLAGS,
  run: (io, flags) => keepCertificates(io, flags, { rotateNow: false, wait: false }),
});
