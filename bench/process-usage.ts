import { readFileSync } from "node:fs";

/** USER_HZ, the unit of times in /proc: 100 on every architecture that Node supports. */
const TICKS_PER_SECOND = 100;

/**
 * CPU seconds that a process has used, user and system time of all its threads. Linux only.
 * @throws {Error} when the process is gone
 */
export function cpuSecondsOf(pid: number | undefined): number {
  const text = readFileSync(`/proc/${pid}/stat`, "latin1");
  // The second field is the name in parentheses, which may hold spaces; after it comes the third one.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [utime, stime] = [fields[14 - 3], fields[15 - 3]];
  return (Number(utime) + Number(stime)) / TICKS_PER_SECOND;
}

/**
 * The largest resident set that a process has had, in MiB. Linux only.
 * @throws {Error} when the process is gone
 */
export function peakMegabytesOf(pid: number | undefined): number {
  const match = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"));
  return Number(match?.[1]) / 1024;
}
