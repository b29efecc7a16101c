/** By what a loop shows that it is alive. */
export interface Pulse {
  /** Says that the loop is alive. */
  beat(): void;
  /** Says that the loop is alive, and waits on purpose for so many milliseconds. */
  pause(ms: number): void;
  /** Says that nothing is due until the next beat, as where there is no work. */
  rest(): void;
}

/** For loops without a health check. */
export const NO_PULSE: Pulse = { beat: () => undefined, pause: () => undefined, rest: () => undefined };
