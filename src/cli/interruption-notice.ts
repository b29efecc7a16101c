import { createLogger } from "../observability/logger.ts";
import type { LogOptions } from "./common-options.ts";
import { Interruption } from "./interruption.ts";
import type { CliIo } from "./io.ts";

const ENDING = "ending cleanly; once more to end at once";
/** What a second signal may cost where CRDs are frozen from here. */
const FREEZE = ", which may leave a freeze behind";

/** Says on stderr that a signal was received, and what a second one does. */
export class InterruptionNotice {
  readonly #io: CliIo;
  #mayFreeze = false;

  constructor(io: CliIo) {
    this.#io = io;
  }

  /** From now on the command may hold a freeze. */
  mayFreeze(): void {
    this.#mayFreeze = true;
  }

  /** From now on a signal is told of: as text, or as the command logs where that is JSON. */
  listen(options: LogOptions): void {
    const { signal } = this.#io;
    signal.addEventListener("abort", () => this.#tell(signal.reason, options), { once: true });
  }

  #tell(reason: unknown, { logFormat: format, logLevel: level }: LogOptions): void {
    if (!(reason instanceof Interruption)) {
      return;
    }
    const { stderr } = this.#io;
    const { signal } = reason;
    const ending = `${ENDING}${this.#mayFreeze ? FREEZE : ""}`;
    if (format === "json") {
      createLogger({ level, format, destination: stderr }).warn({ signal }, `Received a signal, ${ending}`);
    } else {
      stderr.write(`received ${signal}, ${ending}\n`);
    }
  }
}
