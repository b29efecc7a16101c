import { storageVersionOf } from "../crd.ts";
import { readCrd } from "./api.ts";
import { NEW, OLD } from "./crds.ts";
import { type FlipReport, keepFlipping, waitForFreeze } from "./flipper.ts";
import { runKsvm } from "./ksvm.ts";
import { check, quote, say, step } from "./narrate.ts";
import { listOurs, OBJECTS, type Stage, WIDGETS } from "./stage.ts";
import { keepWriting, type WriteReport } from "./writer.ts";

/** Fewer denials than this would show nothing: the run lasts longer than the settle time, at several attempts a second. */
const MIN_DENIALS = 20;
const MIN_WRITES = 20;

export async function migrate(stage: Stage, settle: string): Promise<WriteReport> {
  const { controlPlane, signal } = stage;
  step(`Migrate, with other clients at work: ksvm migrate ${WIDGETS} --unsafe-settle ${settle}`);
  say("While it runs, one client creates and updates objects, through both versions in turn. Another");
  say(`one, once the freeze is in force, keeps trying to make ${OLD} the storage version again.`);
  say("");
  const { code, writes, flips, ours } = await migrateAmongOthers(stage, settle);
  say("");
  signal.throwIfAborted();
  check("ksvm ended with exit code 0", code === 0, code);
  check("while it ran, its Lease, its ValidatingAdmissionPolicy and the binding were there", ours.length === 3, ours);
  checkFlips(flips);
  checkWrites(writes);
  const crd = await readCrd(controlPlane, "widgets");
  check(`the storage version is still ${NEW}`, storageVersionOf(crd) === NEW, crd.spec.versions);
  return writes;
}

async function migrateAmongOthers(
  { controlPlane, signal }: Stage,
  settle: string,
): Promise<{ code: number | null; writes: WriteReport; flips: FlipReport; ours: readonly string[] }> {
  const stop = new AbortController();
  const runSignal = AbortSignal.any([signal, stop.signal]);
  const ended = new AbortController();
  const clientSignal = AbortSignal.any([runSignal, ended.signal]);
  const args = ["migrate", WIDGETS, "--unsafe-settle", settle];
  const kubeconfig = controlPlane.kubeconfigFor();
  const run = runKsvm(args, { kubeconfig, signal: runSignal }).finally(() => ended.abort());
  const writing = keepWriting(controlPlane, OBJECTS, clientSignal);
  const frozen = waitForFreeze(controlPlane, "widgets", clientSignal);
  const looking = frozen.then(() => listOurs(controlPlane));
  const flipping = frozen.then(() => keepFlipping(controlPlane, "widgets", clientSignal));
  const work = [run, writing, looking, flipping] as const;
  try {
    const [{ code }, writes, ours, flips] = await Promise.all(work);
    return { code, writes, flips, ours };
  } finally {
    stop.abort();
    await Promise.allSettled(work);
  }
}

function checkFlips(flips: FlipReport): void {
  const { attempts, denied, deniedLifting, late, accepted, unanswered, denial } = flips;
  check(
    `${attempts} attempts to change the storage version back: none was accepted`,
    accepted === 0,
    `${accepted} accepted`,
  );
  check(
    `${denied} were denied by the freeze, ${deniedLifting} of them though they took the annotation off as well`,
    denied >= MIN_DENIALS && deniedLifting > 0,
    flips,
  );
  if (late > 0) say(`${late} came after ksvm had lifted the freeze, and did nothing: they test for it.`);
  if (unanswered.length > 0) say(`${unanswered.length} failed otherwise, such as: ${unanswered[0]}`);
  say("One denial in full:");
  quote(denial);
}

function checkWrites({ created, updated, through, unanswered }: WriteReport): void {
  check(
    `the writing client created ${created} objects and updated ${updated}, ${through[OLD]} of that through ${OLD}`,
    created >= MIN_WRITES && updated >= MIN_WRITES && (through[OLD] ?? 0) > 0,
    { created, updated, through },
  );
  if (unanswered.length > 0) say(`${unanswered.length} of its writes failed, such as: ${unanswered[0]}`);
}
