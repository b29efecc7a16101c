import { readdirSync, readFileSync } from "node:fs";

const DEADLINE_MS = 2_000;

/**
 * Waits until a process to which SIGSTOP was sent stands still: on a busy machine threads of it run on for a moment, and
 * answer. Where there is no /proc it returns at once.
 */
export function waitUntilStopped(pid: number): void {
  const startedAt = performance.now();
  while (!isStopped(pid) && performance.now() - startedAt < DEADLINE_MS) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
  }
}

function isStopped(pid: number): boolean {
  try {
    const threads = readdirSync(`/proc/${pid}/task`);
    return threads.every((thread) => stateOf(`/proc/${pid}/task/${thread}/stat`) === "T");
  } catch {
    return true;
  }
}

/** The letter behind the name, which is in parentheses and may hold some: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html */
function stateOf(path: string): string {
  const text = readFileSync(path, "utf8");
  return text.charAt(text.lastIndexOf(")") + 2);
}
