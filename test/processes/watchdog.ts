import { type ChildProcess, spawn } from "node:child_process";

// Each line is the whole list of process ids to end. The loop ends when the pipe does, however the writer died.
const SCRIPT = `
while read -r line; do pids=$line; done
[ -z "$pids" ] || kill -KILL $pids 2>/dev/null
[ -z "$1" ] || [ -z "$pids" ] || { sleep 1; rm -rf -- "$1"; }
`;

/** Ends processes when this process has gone, even if it was killed and no handler of its own could run. */
export interface Watchdog {
  /** Replaces the set of processes to end. */
  watch(pids: readonly number[]): void;
  /** Ends the watchdog itself; the processes are left alone. */
  disarm(): void;
}

/**
 * Starts a small shell that reads process ids from a pipe and sends them SIGKILL once the pipe closes.
 * @param dir a folder that it then removes too
 */
export function startWatchdog(dir?: string): Watchdog {
  // In a session of its own, Ctrl-C in the terminal does not end the watchdog before its work.
  const child = spawn("/bin/sh", ["-c", SCRIPT, "watchdog", dir ?? ""], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  const { stdin } = child;
  stdin.on("error", () => {});
  child.unref();
  // The socket behind a pipe would keep an otherwise finished test process alive.
  if ("unref" in stdin && typeof stdin.unref === "function") stdin.unref();
  return {
    watch: (pids) => void stdin.write(`${pids.join(" ")}\n`),
    disarm: () => void stdin.end("\n"),
  };
}

/**
 * Has a child end when this process has gone, even if it was killed: one that outlived a test would never end.
 * @param withGroup also all that it started; for a child that was spawned `detached`
 */
export function endWithThisProcess(child: ChildProcess, { withGroup = false } = {}): void {
  const watchdog = startWatchdog();
  watchdog.watch(child.pid === undefined ? [] : [withGroup ? -child.pid : child.pid]);
  child.once("exit", () => watchdog.disarm());
}
