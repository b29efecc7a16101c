import { setTimeout as sleep } from "node:timers/promises";

import type { CustomResourceDefinition } from "../crd.ts";
import { FREEZE_REASON } from "../../src/freeze/rule.ts";
import { hasFreezeAnnotation } from "../integration/frozen.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { type Answer, messageOf, readCrd } from "./api.ts";
import { crdPath, storageChangeWhileFrozen } from "./crds.ts";

const PAUSE_MS = 50;

/** Every how many attempts the annotation goes in the same update. */
const LIFTING_EVERY = 4;

/** What the API server made of the attempts to change the storage version back. */
export interface FlipReport {
  attempts: number;
  /** Denied by the freeze. */
  denied: number;
  /** Of the denied ones, those that would have taken the annotation off in the same update. */
  deniedLifting: number;
  /** Came when ksvm had lifted the freeze already, and tested for that. */
  late: number;
  accepted: number;
  /** Neither accepted nor denied, such as a timeout on a busy machine. */
  readonly unanswered: string[];
  /** One denial, in full. */
  denial: string;
}

/** Waits until the freeze is in force: a dry-run of a storage change is denied by it. Returns early when aborted. */
export async function waitForFreeze(controlPlane: ControlPlane, plural: string, signal: AbortSignal): Promise<void> {
  const crd = await readCrd(controlPlane, plural);
  while (!signal.aborted) {
    if (isDenial(await flip(controlPlane, plural, { crd, query: "?dryRun=All", liftsFreeze: false }))) return;
    await pause(signal);
  }
}

/** Tries to change the storage version back, again and again, until the signal is aborted. */
export async function keepFlipping(
  controlPlane: ControlPlane,
  plural: string,
  signal: AbortSignal,
): Promise<FlipReport> {
  const crd = await readCrd(controlPlane, plural);
  const report: FlipReport = {
    attempts: 0,
    denied: 0,
    deniedLifting: 0,
    late: 0,
    accepted: 0,
    unanswered: [],
    denial: "",
  };
  while (!signal.aborted) {
    report.attempts++;
    const liftsFreeze = report.attempts % LIFTING_EVERY === 0;
    const answer = await flip(controlPlane, plural, { crd, query: "", liftsFreeze });
    if (isDenial(answer)) {
      report.denied++;
      report.deniedLifting += liftsFreeze ? 1 : 0;
      report.denial = messageOf(answer);
    } else if (answer.status < 300) {
      report.accepted++;
    } else if (answer.status === 422 && !hasFreezeAnnotation(await readCrd(controlPlane, plural))) {
      report.late++;
    } else {
      report.unanswered.push(messageOf(answer));
    }
    await pause(signal);
  }
  return report;
}

interface Attempt {
  readonly crd: CustomResourceDefinition;
  readonly query: string;
  readonly liftsFreeze: boolean;
}

async function flip(controlPlane: ControlPlane, plural: string, { crd, query, liftsFreeze }: Attempt): Promise<Answer> {
  return await controlPlane.request(crdPath(plural) + query, {
    method: "PATCH",
    contentType: "application/json-patch+json",
    body: storageChangeWhileFrozen(crd, liftsFreeze),
  });
}

function isDenial(answer: Answer): boolean {
  return answer.status === 403 && messageOf(answer).includes(`${FREEZE_REASON}:`);
}

async function pause(signal: AbortSignal): Promise<void> {
  await sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined);
}
