/** What a person asked for cannot be done: one line for them, and exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
