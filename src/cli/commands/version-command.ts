import { choice } from "../flags/kinds.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { documentOf } from "../render/document.ts";
import { renderTextOr } from "../render/render-result.ts";
import { EXIT } from "../render/exit-codes.ts";
import { defineCommand } from "../shared/command.ts";
import { programVersion } from "../shared/version.ts";

/** `ksvm version`: prints what a bug report needs. */
export const VERSION_COMMAND = defineCommand({
  path: "version",
  description: "Print the version of this program and of the Node.js that runs it. Contacts no cluster.",
  examples: ["ksvm version", "ksvm version -o json"],
  operands: NO_OPERANDS,
  flags: {
    output: choice(["text", "json", "yaml"], {
      short: "o",
      placeholder: "format",
      default: "text",
      help: "output format",
    }),
  },
  run: async ({ stdout }, { output }) => {
    const version = {
      version: programVersion(),
      node: process.version,
      platform: `${process.platform}/${process.arch}`,
    };
    const text = renderTextOr(
      documentOf("Version", version),
      output,
      () => `ksvm ${version.version} (Node.js ${version.node}, ${version.platform})`,
    );
    stdout.write(`${text}\n`);
    return EXIT.done;
  },
});
