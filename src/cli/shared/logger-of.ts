import { Writable } from "node:stream";
import type { Logger } from "pino";
import { createLogger } from "../../observability/logger.ts";
import type { LogFlags } from "../flags/global-flags.ts";
import type { CliIo } from "../render/io.ts";
import { printable } from "../render/printable.ts";

/** The logger that the flags of every command describe. */
export function loggerOf({ stderr }: CliIo, { logLevel: level, logFormat: format }: LogFlags): Logger {
  return createLogger({ level, format, destination: printableInto(stderr) });
}

/**
 * JSON, of which the text format makes use as well, leaves some of the characters that a terminal acts on as they are.
 */
function printableInto(stream: CliIo["stderr"]): Writable {
  return new Writable({
    write: (line, _encoding, done) => {
      stream.write(printable(String(line)));
      done();
    },
  });
}
