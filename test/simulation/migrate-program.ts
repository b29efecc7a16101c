import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { KsvmError } from "../../src/errors.ts";
import { assembleRun, type RunSettings } from "../../src/migrator/assemble-run.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import { migrateBesideInTree } from "../../src/migrator/beside-in-tree.ts";
import type { MigrationResult } from "../../src/migrator/result.ts";
import type { Schedule } from "./world/schedule.ts";
import type { SimCluster } from "./world/sim-cluster.ts";
import { SimProcess } from "./world/sim-process.ts";

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

/** What a {@link MigrateProgram} is started with. */
export interface MigrateProgramOptions {
  readonly schedule: Schedule;
  readonly cluster: SimCluster;
  /** Unique; the API servers take it for the user. */
  readonly name: string;
  /** `plural.group`. */
  readonly resource: string;
  readonly settings: RunSettings;
  readonly force: boolean;
  readonly onEvent?: (event: MigrationEvent) => void;
}

/** One `ksvm migrate` in a process of its own. */
export class MigrateProgram {
  readonly process: SimProcess;
  readonly options: MigrateProgramOptions;
  #end: ProgramEnd | undefined;
  readonly #interrupt = new AbortController();

  constructor(options: MigrateProgramOptions) {
    this.options = options;
    this.process = new SimProcess(options.schedule, options.name);
    this.process.onCrash(() => {
      this.#end ??= { kind: "crash" };
    });
    void this.#begin();
  }

  /** `undefined` while it runs. */
  get end(): ProgramEnd | undefined {
    return this.#end;
  }

  /** Ctrl-C. */
  interrupt(): void {
    this.#interrupt.abort(new KsvmError("Interrupted", "Interrupted by SIGINT"));
  }

  async #begin(): Promise<void> {
    const end = await this.#run();
    this.#end ??= end;
  }

  async #run(): Promise<ProgramEnd> {
    const { cluster, force, onEvent, resource, settings } = this.options;
    const { clock } = this.process;
    const client = cluster.clientOf(this.process);
    const run = assembleRun(
      { ...settings, client, clock, seen: new SeenServers(clock) },
      {
        dryRun: false,
        force,
        identity: `${this.process.name}_1`,
        purpose: "ksvm migrate",
        emit: (event) => onEvent?.(event),
        cleanupPatience: { ms: CLEANUP_MS, interrupted: this.#interrupt.signal },
        signal: this.#interrupt.signal,
      },
    );
    try {
      return { kind: "result", result: await migrateBesideInTree(run.context, resource, settings.webhookWaitMs) };
    } catch (error) {
      return { kind: "error", error };
    } finally {
      await run.close();
    }
  }
}
