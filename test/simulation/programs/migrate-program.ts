import { EncryptionEvidence } from "../../../src/apiservers/encryption-evidence.ts";
import { SeenServers } from "../../../src/apiservers/seen-servers.ts";
import { KsvmError, messageOf } from "../../../src/errors.ts";
import { assembleRun, type RunSettings } from "../../../src/migrator/assemble-run.ts";
import type { MigrationEvent } from "../../../src/migrator/events.ts";
import { migrateBesideInTree } from "../../../src/migrator/beside-in-tree.ts";
import type { MigrationResult } from "../../../src/migrator/result.ts";
import { resourceOf } from "../world/kinds.ts";
import { SimProcess } from "../world/sim-process.ts";
import type { World } from "../world/world.ts";
import type { Program } from "./started-program.ts";
import { thrownText } from "./thrown-text.ts";
import type { StartedMigration, Witness } from "./witness.ts";

/** What `ksvm migrate` has by default, and pages so small that there are several. */
export const SETTINGS: RunSettings = {
  options: {
    settleMs: 65_000,
    pageSize: 7,
    guard: "auto",
    convergenceTimeoutMs: 120_000,
    proofTimeoutMs: 30_000,
    maxFreezeIdleMs: 300_000,
    leaseNamespace: "kube-system",
    crdMode: "manage",
  },
  maxInFlight: 16,
  maxQps: Number.POSITIVE_INFINITY,
  maxIdleMs: 900_000,
  webhookWaitMs: 900_000,
};
const CLEANUP_MS = 120_000;

/** How a program ended: with a result, an error, or by a crash. */
export type ProgramEnd =
  | { readonly kind: "result"; readonly result: MigrationResult }
  | { readonly kind: "error"; readonly error: unknown }
  | { readonly kind: "crash" };

/** What `ksvm reencrypt` has by default in the place of that. */
const REENCRYPT_OPTIONS = { convergenceTimeoutMs: 600_000, crdMode: "rewrite" } as const;

/** One `ksvm migrate` or `ksvm reencrypt` of one resource, in a process of its own. */
export class MigrateProgram implements Program {
  readonly process: SimProcess;
  readonly #world: World;
  readonly #options: StartedMigration;
  #end: ProgramEnd | undefined;
  #hasWarnedOfFreeze = false;
  readonly #interrupt = new AbortController();
  readonly #witnesses: readonly Witness[];

  constructor(world: World, options: StartedMigration) {
    this.#world = world;
    this.#options = options;
    this.process = new SimProcess(world.schedule, options.name);
    this.process.onCrash(() => this.#over({ kind: "crash" }));
    this.#witnesses = world.witnesses.map((begin) => begin(options));
    world.schedule.untilEnd(() => this.#interrupt.abort());
    void this.#begin();
  }

  /** `undefined` while it runs. */
  get end(): ProgramEnd | undefined {
    return this.#end;
  }

  get isAtRest(): boolean {
    return this.#end !== undefined;
  }

  get endText(): string | undefined {
    switch (this.#end?.kind) {
      case "result":
        return outcomeText(this.#end.result);
      case "error":
        return messageOf(this.#end.error);
      default:
        return this.#end?.kind;
    }
  }

  get hasCleanedUp(): boolean {
    const isFailed = this.#end?.kind === "error" && isCode(this.#end.error, "CleanupFailed");
    return this.#end !== undefined && this.#end.kind !== "crash" && !isFailed && !this.#hasWarnedOfFreeze;
  }

  /** Ctrl-C. */
  interrupt(): void {
    this.#interrupt.abort(new KsvmError("Interrupted", "Interrupted by SIGINT"));
  }

  async #begin(): Promise<void> {
    this.#over(await this.#run());
  }

  #over(end: ProgramEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    if (end.kind === "error") thrownText(this.#world, this.process.name, end.error);
    this.#world.tell(this.process.name, `ended: ${this.endText}`);
    const result = end.kind === "result" ? end.result : undefined;
    for (const witness of this.#witnesses) witness.ended(result, this.endText ?? "");
  }

  async #run(): Promise<ProgramEnd> {
    const { cluster, plan, settings } = this.#world;
    const { force, kind, name, namesServers = false, reencrypts = false } = this.#options;
    const { clock } = this.process;
    const client = cluster.clientOf(this.process);
    const seen = new SeenServers(clock);
    const maxInFlight = plan.maxInFlight ?? settings.maxInFlight;
    const options = { ...settings.options, ...(reencrypts ? REENCRYPT_OPTIONS : {}) };
    const apiserverEndpoints = namesServers ? cluster.nodes.map(({ url }) => url) : undefined;
    const run = assembleRun(
      { ...settings, options, maxInFlight, client, clock, seen, apiserverEndpoints },
      {
        dryRun: false,
        force,
        identity: `${name}_1`,
        ...(reencrypts
          ? { purpose: "ksvm reencrypt", encryption: new EncryptionEvidence({ isAssumed: false }) }
          : { purpose: "ksvm migrate" }),
        emit: (event) => this.#tell(event),
        cleanupPatience: { ms: CLEANUP_MS, interrupted: this.#interrupt.signal },
        signal: this.#interrupt.signal,
      },
    );
    try {
      const work = (): Promise<MigrationResult> =>
        migrateBesideInTree(run.context, resourceOf(kind), settings.webhookWaitMs);
      // As `Reencryption` watches them.
      return { kind: "result", result: await (reencrypts ? seen.arrivals.during(client, work) : work()) };
    } catch (error) {
      return { kind: "error", error };
    } finally {
      await run.close();
    }
  }

  #tell(event: MigrationEvent): void {
    this.#hasWarnedOfFreeze ||= event.type === "warning" && /^Cannot lift the freeze of "[^"]+": /.test(event.message);
    if (event.type !== "progress") this.#world.tell(this.process.name, JSON.stringify(event));
    for (const witness of this.#witnesses) witness.told(event);
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof KsvmError && error.code === code;
}

/** The outcome, and the first object that failed. */
function outcomeText({ failures, outcome }: MigrationResult): string {
  const [first] = failures;
  return first === undefined ? outcome : `${outcome}, ${first.name}: ${first.reason}`;
}
