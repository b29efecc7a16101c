const SIGNALS = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

/**
 * Runs a benchmark to its end. The first signal aborts it, and it ends what it started; a second one exits at once, and
 * the watchdogs end the rest. The exit code is 0 when `main` could measure, whatever it measured.
 */
export async function runScript(main: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const interruption = new AbortController();
  let exitCode = 0;
  for (const [signal, code] of Object.entries(SIGNALS)) {
    process.on(signal, () => {
      if (interruption.signal.aborted) process.exit(code);
      exitCode = code;
      console.error("\ninterrupted: stopping everything");
      interruption.abort(new Error("interrupted"));
    });
  }
  try {
    await main(interruption.signal);
  } catch (error) {
    if (!interruption.signal.aborted) {
      exitCode = 1;
      console.error(error instanceof Error ? error.message : error);
    }
  }
  // Work that nobody waits for any more, such as a build of the control plane, would keep the process.
  if (interruption.signal.aborted) process.exit(exitCode);
  process.exitCode = exitCode;
}

/** Tells on stderr what is being done, so that stdout holds the result only. */
export function say(text: string): void {
  process.stderr.write(`${text}\n`);
}
