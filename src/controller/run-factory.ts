import type { ReencryptionWish } from "../api/reencryption.ts";
import {
  type AssembledRun,
  assembleRun,
  type RunEnvironment,
  type RunParts,
  type RunSettings,
} from "../old/migrator/assemble-run.ts";
import type { RunContext } from "../old/migrator/run-context.ts";
import { UnattendedEvidence } from "./unattended-evidence.ts";
import { type Stall, StallWatch } from "./stall-watch.ts";

/** What a migration adds to a run. */
export type MigrationParts = Omit<RunParts, "dryRun" | "encryption" | "onLimit"> &
  Required<Pick<RunContext, "onPageDone">> & {
    /** `plural.group` */
    readonly resource: string;
    /** What to re-encrypt with: every object is written again, and nothing is frozen or pruned. @default it does not re-encrypt */
    readonly reencryption?: ReencryptionWish | undefined;
  };

/** A run that can be begun, and shows what it waits for. */
export interface OpenedRun extends Omit<AssembledRun, "pending"> {
  /** What keeps the run from getting further; `undefined` where it gets further. */
  stall(): Stall | undefined;
}

/** Makes what a run of the engine is handed. */
export type OpenRun = (parts: MigrationParts) => OpenedRun;

/** What the runs of a controller share. */
export interface RunFactoryOptions extends RunSettings, RunEnvironment {
  /** Told how many requests a run may have under way, whenever that changes. @default none */
  readonly onLimit?: (resource: string, limit: number) => void;
}

/** The runs of the installed system: as those of `ksvm migrate`, with an eye on what stalls them. */
export function runFactory({ onLimit, ...shared }: RunFactoryOptions): OpenRun {
  const { clock } = shared;
  const evidence = new UnattendedEvidence();
  return ({ resource, reencryption, ...parts }) => {
    const stalls = new StallWatch(clock);
    const onRetry = (error: unknown, delayMs: number): void => {
      stalls.failed(error, delayMs);
      shared.onRetry?.(error, delayMs);
    };
    const options = reencryption === undefined ? shared.options : { ...shared.options, crdMode: "rewrite" as const };
    const run = assembleRun(
      { ...shared, options, onRetry },
      {
        ...parts,
        ...(reencryption === undefined ? {} : { encryption: evidence.for(reencryption), force: true }),
        dryRun: false,
        isRemembered: true,
        emit: (event) => {
          stalls.event(event);
          parts.emit(event);
        },
        onLimit: (limit) => onLimit?.(resource, limit),
      },
    );
    const { context, pending } = run;
    const { retrier } = context;
    return {
      ...run,
      stall: () => stalls.stall(retrier.lastProgress, pending.oldest()),
    };
  };
}
