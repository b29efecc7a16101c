import { politely } from "./politely.ts";
import {
  conversionBesidesBundle,
  type CustomResourceDefinition,
  storageVersionOf,
  storedVersionsOf,
} from "../../api/crd.ts";
import { CHECKPOINT_KEY_ANNOTATION } from "../../api/names.ts";
import { formatOwner } from "../../api/owner.ts";
import { earlierProgressOf, formatCheckpoint, resumeExpectationOf, resumePointOf } from "./rewrite/checkpoint.ts";
import { CheckpointKey } from "./checkpoint-key.ts";
import type { Cleanup } from "../retry/cleanup.ts";
import { conversionOf } from "./crd-options.ts";
import { fieldsReportOf, type WayOfPass } from "./rewrite/convert-fields.ts";
import { Tally } from "./rewrite/counts.ts";
import { brokenExpectation, type CrdExpectation } from "../freeze/crd-expectation.ts";
import { CrdMonitor } from "./crd-monitor.ts";
import { FollowedSchemas } from "./followed-schemas.ts";
import { ForeignPrunes } from "./foreign-prunes.ts";
import { FreezeEvidence } from "./freeze-evidence.ts";
import type { GuardedCrd } from "../freeze/guard.ts";
import type { HolderContext } from "../freeze/freeze.ts";
import { FreezeHold } from "../freeze/freeze-hold.ts";
import { replaceCheckpointKey } from "../freeze/leftovers.ts";
import { ListPosition } from "./rewrite/list-position.ts";
import { type Pruned, pruneStoredVersions } from "./prune.ts";
import { readCrd } from "../../resources/read-crd.ts";
import { RestoredObjects } from "./restored-objects.ts";
import { crdResourceOf } from "../../resources/request-resource.ts";
import { type MigrationResult, outcomeOf, reportOf } from "./result.ts";
import { RewritePass, type Settled } from "./rewrite/rewrite-pass.ts";
import { probedResourceOf } from "./rewrite/stuck-probe.ts";
import type { RunContext } from "./run-context.ts";
import type { RunMemory } from "./run-memory.ts";
import type { RunLease } from "../lease/run-lease.ts";
import type { ServerRestarts } from "../apiservers/server-restarts.ts";
import { StartAgain } from "../retry/start-again.ts";

/** What a {@link CrdRun} is made of. */
export interface CrdRunParts {
  readonly context: RunContext;
  readonly lease: RunLease;
  readonly guarded: GuardedCrd;
  /** Releases the freeze and the guard; the caller runs it when the attempt ends. */
  readonly cleanup: Cleanup;
  /** Where the run is forced, the restarts that its attempts have seen: an API server that restarts may encrypt otherwise. */
  readonly restarts: ServerRestarts | undefined;
  /** What one attempt of a run leaves to the next. */
  readonly memory: RunMemory;
}

/** One attempt to migrate one CRD, by the holder of its Lease: steps 1 to 7. The cleanup is step 8. */
export class CrdRun {
  /** Without the context that they came with: it is not fenced by the Lease. */
  readonly #parts: Omit<CrdRunParts, "context" | "guarded">;
  readonly #crdName: string;
  readonly #context: RunContext & HolderContext;
  /** Fenced by the Lease alone: the prune lists the storage version by itself. */
  readonly #byLease: RunContext;
  readonly #abort = new AbortController();
  #tally = new Tally();
  #key = new CheckpointKey();
  #restored: RestoredObjects | undefined;
  /** Whether a later attempt may go on from the checkpoint. */
  #isLasting = true;
  readonly #hold: FreezeHold;
  readonly #evidence: FreezeEvidence;
  readonly #foreignPrunes: ForeignPrunes;
  readonly #schemas: FollowedSchemas;

  constructor({ context, guarded, ...parts }: CrdRunParts) {
    const { cleanup, lease, restarts } = parts;
    const { client, clock, emit, identity, retrier } = context;
    [this.#parts, this.#crdName] = [parts, guarded.crdName];
    const signal = AbortSignal.any([context.signal, this.#abort.signal]);
    const confirm = (): Promise<void> => lease.confirm(signal, retrier);
    this.#byLease = { ...context, client: client.fencedBy(confirm), signal };
    this.#foreignPrunes = new ForeignPrunes(this.#byLease, this.#crdName);
    this.#schemas = new FollowedSchemas(this.#foreignPrunes, () => parts.memory.converted !== undefined);
    cleanup.defer("stop listing the storage version", "nothing is left to do", () => this.#foreignPrunes.end());
    const renew = (): Promise<void> => lease.renew(signal, retrier);
    this.#context = { ...this.#byLease, client: client.fencedBy(() => this.#schemas.passed(confirm)), renew };
    // One that shows another storage version may have written it beyond the watermark of the checkpoint.
    this.#evidence = new FreezeEvidence(this.#context, guarded, restarts, () => this.#forget());
    parts.memory.liftAgain = (within) => this.#hold.lift(within);
    this.#hold = new FreezeHold({
      ...guarded,
      owner: { lease: lease.key, identity, since: new Date(clock.now()).toISOString() },
      releasing: { client, retrier },
      cleanup,
      onLifted: () => {
        parts.memory.liftAgain = undefined;
        emit({ type: "unfrozen" });
      },
      besides: { [CHECKPOINT_KEY_ANNOTATION]: this.#key.publicKey },
      undone: () => (this.#isLasting && this.#known !== undefined ? {} : { [CHECKPOINT_KEY_ANNOTATION]: null }),
    });
  }

  /** @throws {KsvmError} where nothing was pruned; {StartAgain | WaitingForOthers | MissingApiServer} where the run should begin again. */
  async run(): Promise<MigrationResult> {
    try {
      const result = await this.#run();
      this.#isLasting = result.outcome === "incomplete";
      return result;
    } catch (error) {
      this.#isLasting = !(error instanceof StartAgain);
      throw error;
    }
  }

  async #run(): Promise<MigrationResult> {
    const [{ emit }, { memory }] = [this.#context, this.#parts];
    const frozen = await this.#hold.take(this.#context);
    emit({ type: "frozen", storageVersion: storageVersionOf(frozen), guard: this.#hold.guard });
    await this.#signAgain();
    const { apiServers, silent } = await this.#evidence.prove(frozen);
    const crd = await readCrd(this.#context, this.#crdName);
    const expected = this.#expectationOf(crd, frozen);
    const monitor = this.#monitor(expected, crd);
    await this.#evidence.settle(apiServers, silent, crd);
    const isResumed = await this.#rewrite(crd);
    await this.#foreignPrunes.report(crd);
    const pruned = this.#tally.counts.failed === 0 ? await this.#prune(expected, monitor) : undefined;
    const { clearsDoubt = false, ...proven } = pruned ?? {};
    if (pruned !== undefined) {
      const { storedVersions } = pruned;
      const removed = storedVersionsOf(crd).filter((version) => !storedVersions.includes(version));
      emit({ type: "pruned", storedVersions, removed, ...(clearsDoubt ? { clearsDoubt } : {}) });
    }
    return {
      resource: this.#crdName,
      outcome: outcomeOf(this.#tally, "migrated"),
      storageVersion: expected.storageVersion,
      ...proven,
      ...(isResumed ? { isResumed } : {}),
      ...(memory.converted === undefined ? {} : { managedFields: fieldsReportOf(memory.converted, this.#tally) }),
      ...reportOf(this.#tally),
    };
  }

  /** From the proof on the storage version cannot change unseen, so this is where the expectation is taken from. */
  #expectationOf(crd: CustomResourceDefinition, frozen: CustomResourceDefinition): CrdExpectation {
    const expected: CrdExpectation = {
      name: this.#crdName,
      uid: frozen.metadata.uid,
      storageVersion: storageVersionOf(crd),
      requestVersion: crdResourceOf(crd).version,
      conversion: conversionBesidesBundle(crd),
      owner: formatOwner(this.#hold.owner),
    };
    const broken = brokenExpectation(expected, crd);
    if (broken !== undefined) {
      throw broken;
    }
    return expected;
  }

  #monitor(expected: CrdExpectation, crd: CustomResourceDefinition): CrdMonitor {
    const prunes = this.#foreignPrunes;
    const onBroken = (reason: unknown): void => this.#abort.abort(reason);
    const onSeen = (seen: CustomResourceDefinition): void => {
      prunes.saw(seen);
      this.#schemas.saw(seen);
    };
    const monitor = new CrdMonitor({ ...this.#context, expected, onBroken, onSeen });
    prunes.judge = (seen) => monitor.judge(seen);
    // What is under way then may be written by an API server that is behind, too.
    this.#schemas.onBroken = onBroken;
    this.#schemas.toldUpTo = (seen) => monitor.toldUpTo(seen, this.#context.signal);
    this.#schemas.saw(crd);
    this.#parts.cleanup.defer("stop watching the CRD", "nothing is left to do", () => monitor.stop());
    monitor.start(crd);
    return monitor;
  }

  /** @returns whether an earlier attempt did a part of it */
  async #rewrite(crd: CustomResourceDefinition): Promise<boolean> {
    const [{ emit, options }, { memory }] = [this.#context, this.#parts];
    const resume = await this.#resumePoint(crd);
    const { progress, seen } = resume ?? {};
    // What an attempt did after its last whole page is looked at again, and counted then.
    const left = memory.left?.checkpoint === this.#known ? memory.left : undefined;
    const tally = (this.#tally = left === undefined ? Tally.after(progress?.counts) : new Tally(left.tally));
    if (resume !== undefined) {
      emit({ type: "resumed", watermark: resume.watermark, counts: { ...tally.counts } });
    }
    const served = probedResourceOf(crd);
    const restored = await RestoredObjects.begin(this.#context, served, { ...memory, seen });
    [this.#restored, memory.objectsSeen] = [restored, restored.seen];
    const report = (): void => emit({ type: "progress", counts: { ...tally.counts } });
    const pass = new RewritePass({
      ...this.#context,
      ...served,
      objectsSeen: restored.seen,
      pageSize: options.pageSize,
      dryRun: false,
      scope: crd.spec.scope,
      subresource: options.subresource,
      reads: this.#schemas,
      ...this.#wayOfPass(crd),
      resume,
      tally,
      position: left?.position ?? new ListPosition(progress?.position),
      onPage: async (settled) => {
        report();
        await restored.assertNoneOfLate();
        await this.#saveCheckpoint(crd, settled);
        await this.#context.onPageDone?.(settled.point);
      },
      onObject: report,
    });
    this.#schemas.isResumed = () => pass.isResumed;
    await politely(this.#context, served.resource, () => pass.run());
    this.#schemas.written();
    return pass.isResumed;
  }

  /** A checkpoint that does not match is taken back: what it rests on may look as before to the next run. */
  async #resumePoint(crd: CustomResourceDefinition): Promise<ReturnType<typeof resumePointOf>> {
    const expected = resumeExpectationOf(this.#context, this.#evidence.restsOn);
    const resume = resumePointOf(this.#known, crd, expected);
    await (resume === undefined && this.#known !== undefined ? this.#forget() : undefined);
    return resume;
  }

  /** What is converted counts on from what earlier attempts of the run did. */
  #wayOfPass(crd: CustomResourceDefinition): Partial<WayOfPass> {
    const { memory } = this.#parts;
    const conversion = conversionOf(this.#context.options, crd, memory.converted);
    memory.converted = conversion?.converted;
    return conversion?.wayOfPass ?? {};
  }

  async #saveCheckpoint(crd: CustomResourceDefinition, { point, position, tally }: Settled): Promise<void> {
    const { memory } = this.#parts;
    const checkpoint = await this.#sign(
      formatCheckpoint({
        ...resumeExpectationOf(this.#context, this.#evidence.restsOn),
        crdUid: crd.metadata.uid,
        generation: crd.metadata.generation ?? 0,
        storageVersion: storageVersionOf(crd),
        seen: this.#restored?.seen.current,
        ...point,
        ...(point.continueToken === undefined ? {} : { progress: earlierProgressOf(tally.counts, position.state) }),
      }),
    );
    memory.left = { checkpoint, tally, position };
  }

  /** The checkpoint on the Lease, where this run knows that it is not made up. */
  get #known(): string | undefined {
    return this.#parts.memory.known?.find((known) => known === this.#parts.lease.checkpoint);
  }

  /** The CRD has the key of this attempt by now, so nothing shows any more who wrote what an earlier one left. */
  async #signAgain(): Promise<void> {
    const { memory } = this.#parts;
    const known = this.#known;
    if (known !== undefined) {
      const checkpoint = await this.#sign(known);
      memory.left = memory.left?.checkpoint === known ? { ...memory.left, checkpoint } : memory.left;
    }
  }

  /** Takes back what is on the Lease, and the key: another client may have kept what this attempt has signed. */
  async #forget(): Promise<void> {
    const { lease, memory } = this.#parts;
    memory.known = [];
    await lease.voidCheckpoint(this.#context);
    if (this.#key.hasSigned) {
      const { publicKey: key } = this.#key;
      this.#key = new CheckpointKey();
      await replaceCheckpointKey(this.#context, this.#crdName, { key, by: this.#key.publicKey });
    }
  }

  /** @returns the checkpoint as the Lease has it then */
  async #sign(unsigned: string): Promise<string> {
    const { lease, memory } = this.#parts;
    const checkpoint = this.#key.sign(unsigned);
    memory.known = [...(memory.known ?? []).slice(-1), checkpoint];
    await lease.saveCheckpoint(checkpoint, this.#context);
    memory.known = memory.known.slice(-1);
    return checkpoint;
  }

  #prune(expected: CrdExpectation, monitor: CrdMonitor): Promise<Pruned> {
    return pruneStoredVersions(this.#byLease, {
      renewLease: async () => {
        await this.#context.renew();
        await this.#restored?.assertNone();
      },
      expected,
      monitor,
      proveAgain: () => this.#evidence.repeat(() => readCrd(this.#context, this.#crdName)),
    });
  }
}
