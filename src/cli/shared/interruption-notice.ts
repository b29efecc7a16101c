import type { LogFlags } from "../flags/global-flags.ts";
import { Interruption } from "./interruption.ts";
import type { CliIo } from "../render/io.ts";
import { loggerOf } from "./logger-of.ts";

/** What a user does to force it, by the signal that came. A second SIGHUP forces nothing. */
const AGAIN: Partial<Readonly<Record<NodeJS.Signals, string>>> = {
  SIGINT: "press Ctrl-C again",
  SIGHUP: "send SIGTERM",
};

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
    if (flags.logFormat === "json") {
      const facts = { signal, forcingMayLeaveFreeze: this.#mayFreeze };
      const logger = loggerOf(this.#io, flags);
      if (signal === "SIGHUP") {
        logger.warn(facts, "Received a signal, shutting down; SIGTERM forces it");
      } else {
        logger.warn(facts, "Received a signal, shutting down; a second signal forces it");
      }
    } else {
      const risk = this.#mayFreeze ? ", which may leave a freeze behind" : "";
      const again = AGAIN[signal] ?? `send ${signal} again`;
      this.#io.stderr.write(`Received ${signal}, shutting down (${again} to force${risk})\n`);
    }
  }
}
