import { KsvmError } from "../../errors.ts";

/** Why a command ends before its work is done: the process got a signal. */
export class Interruption extends KsvmError {
  readonly signal: NodeJS.Signals;

  constructor(signal: NodeJS.Signals) {
    super("Interrupted", "Interrupted: run again to resume");
    this.signal = signal;
  }
}
