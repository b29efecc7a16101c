/** What the exit codes of every command mean. docs/user-guide.md lists them. */
export const EXIT = {
  done: 0,
  failed: 1,
  usage: 2,
  incomplete: 3,
  needsMigration: 4,
  wouldFail: 5,
  interrupted: 130,
} as const;

/** One of {@link EXIT}. */
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/**
 * The exit code of several pieces of work: an interruption above all, then what is known to fail, then a failure, then
 * what was left over.
 */
export function worstOf(codes: readonly ExitCode[]): ExitCode {
  const { failed, incomplete, interrupted, needsMigration, usage, wouldFail } = EXIT;
  const order: readonly ExitCode[] = [interrupted, usage, wouldFail, failed, needsMigration, incomplete];
  return order.find((code) => codes.includes(code)) ?? EXIT.done;
}
