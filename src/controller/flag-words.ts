/** The flags that errors and warnings of a run name. */
const FLAG_OF_A_RUN = /--(?:apiserver-endpoints|convergence|ignore-apiserver)\b/;

/** The message of a run as the user of a migration object reads it, who has passed no flag: it says whose flags it names. */
export function withProgramOfFlags(message: string): string {
  return FLAG_OF_A_RUN.test(message) ? `${message} (flags of "ksvm controller")` : message;
}
