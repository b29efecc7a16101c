import { systemClock } from "../../clock.ts";
import { CHECK_PATIENCE } from "../../plan/check-facts.ts";
import { type CrdManifest, readManifests } from "../../plan/crd-manifests.ts";
import { messageOf } from "../../errors.ts";
import { ApiError } from "../../old/kube/errors.ts";
import { failureKindOf } from "../../old/kube/failure.ts";
import { Retrier } from "../../old/retry/retrier.ts";
import { outcomeOf, survey, type UpgradeContext, upgradeCrd } from "../../upgrade/upgrade-crd.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import { printable } from "../render/printable.ts";
import { describeRefusal, renderUpgrade } from "../render/render-upgrade.ts";
import type { Reporter } from "../render/reporter.ts";
import { readManifestFiles } from "../shared/read-manifest-files.ts";
import { reportOn, type RunSession } from "../shared/resource-run.ts";

/** What `ksvm migrate -f` is told. */
export interface FilesSession extends RunSession {
  readonly flags: {
    readonly apply: boolean;
    readonly dryRun: boolean;
    readonly maxIdleMs: number;
  };
  /** Migrates one resource, and reports it. */
  readonly migrate: (name: string) => Promise<ExitCode>;
}

/** Takes each CRD of files from what it is to what its file says, each by itself. The exit code is the worst. */
export async function migrateFiles(session: FilesSession, paths: readonly string[]): Promise<ExitCode> {
  const { crds } = readManifests(await readManifestFiles(paths, session.io));
  const codes: ExitCode[] = [];
  for (const manifest of crds) {
    codes.push(session.io.signal.aborted ? EXIT.interrupted : await migrateFile(session, manifest));
  }
  return worstOf(codes);
}

function migrateFile(session: FilesSession, manifest: CrdManifest): Promise<ExitCode> {
  return reportOn(session, manifest.name, async ({ log, reporter }) => {
    let migrated: ExitCode = EXIT.done;
    const context = contextOf(session, reporter, async () => {
      migrated = await session.migrate(manifest.name);
      return migrated === EXIT.done;
    });
    try {
      if (session.flags.dryRun) {
        return await showSteps(session, context, manifest);
      }
      const end = await upgradeCrd({ ...context, onStep: tellStep(reporter) }, manifest);
      log.debug({ end }, "Upgrade ended");
      if (end.outcome === "incomplete") {
        return migrated;
      }
      return finish(reporter, { ...end, isApplied: session.flags.apply, source: manifest.source });
    } catch (error) {
      if (failureKindOf(error) !== "rejected" || !(error instanceof ApiError)) {
        throw error;
      }
      reporter.error(error);
      return EXIT.wouldFail;
    }
  });
}

/** A loss is told once, before the first step. */
function tellStep(reporter: Reporter): UpgradeContext["onStep"] {
  const told = new Set<string>();
  return ({ does, kind, why }, losses) => {
    for (const note of losses.filter((one) => !told.has(one))) {
      told.add(note);
      reporter.note(`note: ${note}`);
    }
    reporter.note(`${kind}: ${does}, because ${why}`);
  };
}

function contextOf(session: FilesSession, reporter: Reporter, migrate: () => Promise<boolean>): UpgradeContext {
  const { connection, flags, io } = session;
  const { maxIdleMs } = flags;
  const told = new Set<string>();
  const onRetry = (error: unknown): void => {
    const text = messageOf(error);
    if (!told.has(text)) {
      told.add(text);
      reporter.note(`waiting: ${text}`);
    }
  };
  const parts = { clock: systemClock, random: Math.random };
  const base = { client: connection.client, signal: io.signal };
  return {
    ...base,
    retrier: new Retrier({ ...parts, maxIdleMs, webhookWaitMs: maxIdleMs, onRetry }),
    checking: { ...base, retrier: new Retrier({ ...parts, ...CHECK_PATIENCE }) },
    isApplied: flags.apply,
    migrate,
    onStep: () => undefined,
  };
}

async function showSteps(session: FilesSession, context: UpgradeContext, manifest: CrdManifest): Promise<ExitCode> {
  const { entry, steps } = await survey(context, manifest);
  session.io.stdout.write(`${printable(renderUpgrade({ entry, steps }, session.format))}\n`);
  return EXIT_CODES[outcomeOf(entry) ?? "done"];
}

const EXIT_CODES = { done: EXIT.done, refused: EXIT.wouldFail, unknown: EXIT.failed } as const;

interface Ending {
  readonly outcome: keyof typeof EXIT_CODES;
  readonly entry: Parameters<typeof describeRefusal>[0];
  readonly isApplied: boolean;
  readonly source: string;
}

function finish(reporter: Reporter, { entry, isApplied, outcome, source }: Ending): ExitCode {
  if (outcome !== "done") {
    reporter.note(describeRefusal(entry));
  } else if (isApplied) {
    reporter.note(`the CRD is what ${source} says`);
  } else {
    reporter.note(
      `${source} can be applied now: storedVersions lists no version that it drops. Apply it by kubectl, Helm or ` +
        "Argo CD, or by ksvm migrate -f with --apply",
    );
  }
  const rest = entry.storedVersions ?? [];
  if (outcome === "done" && isApplied && rest.length > 1) {
    reporter.note(
      `objects may be stored in ${rest.join(" and ")}: ksvm migrate ${entry.name} rewrites them in one version`,
    );
  }
  return EXIT_CODES[outcome];
}
