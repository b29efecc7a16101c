import { setTimeout as sleep } from "node:timers/promises";

import type { ControlPlane } from "../control-plane/control-plane.ts";
import { messageOf } from "./api.ts";
import { apiVersion, NEW, objectsPath, OLD } from "./crds.ts";
import { formatCount, progress } from "./narrate.ts";

const PAUSE_MS = 40;
const IN_FLIGHT = 16;
const TEXT = "a few words, so that an object is about as large as a small one of real life. ".repeat(5);

/** Creates objects in the old version, many at a time. */
export async function createObjects(
  controlPlane: ControlPlane,
  { plural, kind, count }: { readonly plural: string; readonly kind: string; readonly count: number },
  signal: AbortSignal,
): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      signal.throwIfAborted();
      const name = `${kind.toLowerCase()}-${next++}`;
      const body = { apiVersion: apiVersion(OLD), kind, metadata: { name }, spec: { size: 0, text: TEXT } };
      const answer = await controlPlane.request(objectsPath(plural, OLD), { method: "POST", body });
      if (answer.status !== 201) throw new Error(`Cannot create ${plural} "${name}": ${messageOf(answer)}`);
      if (next % 100 === 0) progress(`${formatCount(next)} of ${formatCount(count)}`);
    }
  };
  try {
    await Promise.all(Array.from({ length: IN_FLIGHT }, worker));
  } finally {
    progress("");
  }
}

/** What a client wrote while the migration ran. */
export interface WriteReport {
  created: number;
  updated: number;
  /** Writes through each of the two versions. */
  readonly through: Record<string, number>;
  /** By name, the size that was written last; without those of which no answer tells. */
  readonly sizes: Map<string, number>;
  readonly unanswered: string[];
}

/** Creates new widgets and updates existing ones, through both versions in turn, until the signal is aborted. */
export async function keepWriting(
  controlPlane: ControlPlane,
  existing: number,
  signal: AbortSignal,
): Promise<WriteReport> {
  const report: WriteReport = {
    created: 0,
    updated: 0,
    through: { [OLD]: 0, [NEW]: 0 },
    sizes: new Map(),
    unanswered: [],
  };
  for (let turn = 0; !signal.aborted; turn++) {
    const version = turn % 2 === 0 ? OLD : NEW;
    const size = turn + 1;
    if (await createWidget(controlPlane, { version, name: `new-${turn}`, size }, report)) report.created++;
    // Steps over the whole list, so that some are met before the migration reaches them and some after it.
    const name = `widget-${(turn * 797) % existing}`;
    if (await updateWidget(controlPlane, { version, name, size }, report)) report.updated++;
    await sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined);
  }
  return report;
}

interface Write {
  readonly version: string;
  readonly name: string;
  readonly size: number;
}

async function createWidget(controlPlane: ControlPlane, write: Write, report: WriteReport): Promise<boolean> {
  const { version, name, size } = write;
  const body = { apiVersion: apiVersion(version), kind: "Widget", metadata: { name }, spec: { size, text: TEXT } };
  const answer = await controlPlane.request(objectsPath("widgets", version), { method: "POST", body });
  return record(write, answer, report);
}

async function updateWidget(controlPlane: ControlPlane, write: Write, report: WriteReport): Promise<boolean> {
  const path = `${objectsPath("widgets", write.version)}/${write.name}`;
  const answer = await controlPlane.request(path, { method: "PATCH", body: { spec: { size: write.size } } });
  return record(write, answer, report);
}

function record(write: Write, answer: { status: number; body: unknown }, report: WriteReport): boolean {
  if (answer.status >= 300) {
    report.sizes.delete(write.name);
    report.unanswered.push(messageOf(answer));
    return false;
  }
  report.sizes.set(write.name, write.size);
  report.through[write.version] = (report.through[write.version] ?? 0) + 1;
  return true;
}
