import type { LogFlags } from "../flags/global-flags.ts";
import { Interruption } from "./interruption.ts";
import type { CliIo } from "../render/io.ts";
import { loggerOf } from "./logger-of.ts";

/** What a second signal may cost if this command has frozen CRDs. */
const FREEZE = "may leave a freeze behind";

/** Reports on stderr that a signal was received, and what a second one does. */
export class InterruptionNotice {
  readonly #io: CliIo;
  #mayFreeze = false;

  constructor(io: CliIo) {
    this.#io = io;
  }

  /** From now on the command may have frozen CRDs. */
  mayFreeze(): void {
    this.#mayFreeze = true;
  }

  /** From now on a signal is reported: as text, or as a line of the log if the log is JSON. */
  listen(flags: LogFlags): void {
    const { signal } = this.#io;
    signal.addEventListener("abort", () => this.#tell(signal.reason, flags), { once: true });
  }

  #tell(reason: unknown, flags: LogFlags): void {
    if (!(reason instanceof Interruption)) {
      return;
    }
    const { signal } = reason;
    const risk = this.#mayFreeze ? `, which ${FREEZE}` : "";
    if (flags.logFormat === "json") {
      loggerOf(this.#io, flags).warn({ signal }, `Received a signal, shutting down; a second signal forces it${risk}`);
    } else {
      const again = signal === "SIGINT" ? "press Ctrl-C again" : `send ${signal} again`;
      this.#io.stderr.write(`Received ${signal}, shutting down (${again} to force${risk})\n`);
    }
  }
}
