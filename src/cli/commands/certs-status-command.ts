import { printable } from "../render/printable.ts";
import { certificateStatus } from "../../certs/certificate-status.ts";
import { systemClock } from "../../clock.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { documentOf } from "../render/document.ts";
import { renderTextOr } from "../render/render-result.ts";
import { EXIT } from "../render/exit-codes.ts";
import { SECRET_FLAGS } from "../flags/certificate-flags.ts";
import { choice } from "../flags/kinds.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { renderCertificates } from "../render/render-certificates.ts";

/** `ksvm certs status`: shows the certificates and the progress of a rotation; changes nothing. */
export const CERTS_STATUS_COMMAND = defineCommand({
  path: "certs status",
  description: "Show the certificates and the progress of a rotation, without changing anything.",
  examples: ["ksvm certs status", "ksvm certs status -o json"],
  operands: NO_OPERANDS,
  flags: {
    output: choice(["text", "json", "yaml"], {
      short: "o",
      placeholder: "format",
      default: "text",
      help: "output format",
    }),
    ...SECRET_FLAGS,
  },
  async run(io, flags) {
    const connection = await connect(flags, io.signal);
    try {
      const status = await certificateStatus(connection.kube, { ...flags, clock: systemClock, signal: io.signal });
      const text = renderTextOr(documentOf("CertificateStatus", status), flags.output, () =>
        renderCertificates(status),
      );
      io.stdout.write(`${printable(text)}\n`);
      return EXIT.done;
    } finally {
      await connection.close();
    }
  },
});
