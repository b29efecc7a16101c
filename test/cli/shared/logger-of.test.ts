import { PassThrough } from "node:stream";
import tap from "tap";
import { loggerOf } from "../../../src/cli/shared/logger-of.ts";

const HOSTILE = "a\u001b[2J\u009b31m\u202eb";

for (const logFormat of ["text", "json"] as const) {
  await tap.test(`loggerOf() escapes what a terminal would act on, as ${logFormat}`, (t) => {
    const stderr = new PassThrough();
    const logger = loggerOf(
      { stderr, stdout: new PassThrough(), signal: new AbortController().signal },
      { logFormat, logLevel: "info" },
    );
    logger.info({ answer: { message: HOSTILE }, text: HOSTILE }, "First");
    logger.info("Second");
    const written = String(stderr.read());
    t.notMatch(written, /[^\P{Cc}\n]|\u202e/u);
    t.match(written, /\\u009b31m\\u202eb/);
    t.match(written, /First[^]*Second/);
    if (logFormat === "json") {
      const [first = ""] = written.split("\n");
      t.match(JSON.parse(first), { answer: { message: HOSTILE }, text: HOSTILE, msg: "First" });
    }
    t.end();
  });
}
