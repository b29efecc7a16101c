// Preloaded into ksvm by run-ksvm.ts (node --import): tells on file descriptor 3 what the process used, when it ends.
// Node does not hand out the resource usage of a child, and a child that has ended is no longer in /proc.
//
// JavaScript, because Node's type stripping would add its own memory to what is measured.
import { readFileSync, writeSync } from "node:fs";

process.on("exit", () => {
  const { userCPUTime, systemCPUTime } = process.resourceUsage();
  // Not maxRSS of the above, which begins with that of the parent: exec_mmap in
  // https://github.com/torvalds/linux/blob/v6.12/fs/exec.c
  const peak = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync("/proc/self/status", "latin1"));
  const usage = { cpuSeconds: (userCPUTime + systemCPUTime) / 1e6, peakMegabytes: Number(peak?.[1]) / 1024 };
  writeSync(3, JSON.stringify(usage));
});
