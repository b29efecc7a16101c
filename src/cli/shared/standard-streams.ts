import { KsvmError, messageOf } from "../../errors.ts";

/** A reader that went away (`ksvm plan | head`), or the terminal did: not an error of what is written. */
const READER_IS_GONE = new Set(["EPIPE", "EIO", "ECONNRESET", "ERR_STREAM_DESTROYED"]);

/** Keeps a failed write to stdout or stderr from ending the process before it has lifted its freezes. */
export class StandardStreams {
  readonly #stdout: NodeJS.WritableStream;
  #failure: Error | undefined;

  constructor(stdout: NodeJS.WritableStream, stderr: NodeJS.WritableStream) {
    this.#stdout = stdout;
    stdout.on("error", (error: Error) => {
      const isReader = "code" in error && READER_IS_GONE.has(String(error.code));
      this.#failure ??= isReader ? undefined : error;
    });
    // Nothing is left to tell it to.
    stderr.on("error", () => undefined);
  }

  /** Waits until everything is written. @returns what went wrong, as where the disk is full */
  async failure(): Promise<KsvmError | undefined> {
    await new Promise((resolve) => {
      this.#stdout.write("", resolve);
    });
    const cause = this.#failure;
    return cause && new KsvmError("OutputFailed", `Cannot write to stdout: ${messageOf(cause)}`, { cause });
  }
}
