import { bundle } from "../../tools/build.ts";
import { existsSync } from "node:fs";

import { ensureBinaries } from "../control-plane/binaries.ts";
import { type ControlPlane, startControlPlane } from "../control-plane/control-plane.ts";
import { call } from "./api.ts";
import { migrate } from "./migrate-step.ts";
import { CheckFailed, check, checkCount, say, step } from "./narrate.ts";
import { changeStorageVersion, createWidgets, installCrd, showPlan, showRefusal } from "./prepare-steps.ts";
import type { Stage } from "./stage.ts";
import { showUnsafePruning } from "./unsafe-pruning.ts";
import { dropOldVersion, lookForLeftovers, lookIntoEtcd } from "./verify-steps.ts";

const REQUEST_TIMEOUT = "5s";
const SETTLE = "6s";

/** Several times what a slow machine takes: a program that hangs must not hang the demo. */
const DEADLINE_MINUTES = 5;

const SIGNALS = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

const interruption = new AbortController();
let exitCode = 1;

for (const [signal, code] of Object.entries(SIGNALS)) {
  process.on(signal, () => {
    // A second signal means at once. The watchdog of the control plane ends it all the same.
    if (interruption.signal.aborted) process.exit(code);
    exitCode = code;
    console.error("\ninterrupted: stopping everything");
    interruption.abort(new Error("interrupted"));
  });
}

try {
  await demonstrate(interruption.signal);
  interruption.signal.throwIfAborted();
  exitCode = 0;
} catch (error) {
  if (!interruption.signal.aborted) {
    const text = error instanceof CheckFailed ? error.message : error instanceof Error ? error.stack : String(error);
    console.error(`\nThe demo failed: ${text}`);
  }
}
// A build of the control plane may still be under way after an interruption.
if (interruption.signal.aborted) process.exit(exitCode);
process.exitCode = exitCode;

async function demonstrate(interrupted: AbortSignal): Promise<void> {
  await Promise.race([ensureBinaries(["etcd", "kube-apiserver"]), rejectionOf(interrupted)]);
  await bundle();
  const signal = AbortSignal.any([interrupted, deadlineSignal()]);
  const startedAt = performance.now();
  const controlPlane = await start();
  const pids = controlPlane.processes.flatMap(({ pid }) => pid ?? []);
  try {
    await showAll(controlPlane, signal);
    step("End etcd and the kube-apiserver");
  } finally {
    await controlPlane.stop();
  }
  const alive = pids.filter(isAlive);
  check("no process runs any more", pids.length === 2 && alive.length === 0, alive);
  check("the folder with their data is gone", !existsSync(controlPlane.dir), controlPlane.dir);
  const seconds = Math.round((performance.now() - startedAt) / 1_000);
  console.log(`\nAll ${checkCount()} checks passed, in ${seconds} s.`);
}

async function start(): Promise<ControlPlane> {
  step("Start etcd and a kube-apiserver");
  return await startControlPlane({ requestTimeout: REQUEST_TIMEOUT });
}

async function introduce({ controlPlane }: Stage): Promise<void> {
  const { gitVersion } = await call<{ readonly gitVersion: string }>(controlPlane, "/version");
  say(`Kubernetes ${gitVersion} serves on ${controlPlane.apiservers[0]?.url}.`);
  say("A write that was under way when the storage version changed may land later, in the old");
  say("version, until --request-timeout ends it, and ksvm waits for that (--settle). So that this");
  say(`takes seconds, they are ${REQUEST_TIMEOUT} and ${SETTLE} here; by default they are 60s and 90s.`);
}

async function showAll(controlPlane: ControlPlane, signal: AbortSignal): Promise<void> {
  const stage = { controlPlane, signal };
  for (const show of [introduce, installCrd, createWidgets, changeStorageVersion, showRefusal, showPlan]) {
    signal.throwIfAborted();
    await show(stage);
  }
  const writes = await migrate(stage, SETTLE);
  const objects = await lookIntoEtcd(stage, writes);
  await lookForLeftovers(stage);
  await dropOldVersion(stage, objects);
  await showUnsafePruning(stage);
}

function deadlineSignal(): AbortSignal {
  const deadline = new AbortController();
  const reason = new CheckFailed(`it did not end within ${DEADLINE_MINUTES} minutes`);
  setTimeout(() => deadline.abort(reason), DEADLINE_MINUTES * 60_000).unref();
  return deadline.signal;
}

function rejectionOf(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
  });
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
