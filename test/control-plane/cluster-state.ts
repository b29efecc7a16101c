import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { CACHE_DIR } from "./binaries.ts";

/** Where `make cluster-up` keeps data, logs and kubeconfigs. */
export const RUN_DIR = join(CACHE_DIR, "run");
/** What `make cluster-up` leaves for other programs. */
export const ENV_FILE = join(CACHE_DIR, "env.json");

/** The content of ENV_FILE. */
export interface ClusterState {
  /** The path of a kubeconfig of the first apiserver, for a user who may do everything. */
  readonly kubeconfig: string;
  /** The https URLs of all apiservers. */
  readonly apiservers: readonly string[];
  /** The http URL of etcd. */
  readonly etcd: string;
  /** Process ids by name: "etcd", "kube-apiserver-0", … */
  readonly pids: Readonly<Record<string, number>>;
}

/** What the last `make cluster-up` wrote, whether or not it still runs; undefined without one. */
export function readClusterState(): ClusterState | undefined {
  return existsSync(ENV_FILE) ? (JSON.parse(readFileSync(ENV_FILE, "utf8")) as ClusterState) : undefined;
}

export function writeClusterState(state: ClusterState): void {
  writeFileSync(ENV_FILE, `${JSON.stringify(state, undefined, 2)}\n`);
}

/** Removes ENV_FILE and all data. */
export function removeCluster(): void {
  rmSync(ENV_FILE, { force: true });
  rmSync(RUN_DIR, { recursive: true, force: true });
}

/** The names of those processes that still run, clients of etcd first. */
export function runningProcesses(state: ClusterState): [name: string, pid: number][] {
  const running = Object.entries(state.pids).filter(([name, pid]) => isStill(name, pid));
  return running.toSorted(([a], [b]) => Number(a === "etcd") - Number(b === "etcd"));
}

// A pid in an old file may belong to something else by now. Every program of the cluster has a path in RUN_DIR among
// its arguments.
function isStill(name: string, pid: number): boolean {
  const command = commandOf(pid);
  return command.includes(name.replace(/-\d+$/, "")) && command.includes(`${RUN_DIR}/`);
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
  } catch {
    // Gone, or a system without /proc.
    return spawnSync("ps", ["-ww", "-o", "command=", "-p", String(pid)], { encoding: "utf8" }).stdout ?? "";
  }
}
