import type { CrdManifest, Step } from "../../inventory/steps.ts";
import { check, type CheckEntry, upgrade, type UpgradeEnd } from "../../inventory/upgrade.ts";
import { isDenial, whose } from "../../kube/errors.ts";
import type { Resource } from "../../kube/objects.ts";
import { documentOf } from "../render/document.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import { printable } from "../render/printable.ts";
import { describeEntry, describeRefusal } from "../render/render-check.ts";
import type { Reporter } from "../render/reporter.ts";
import { readManifestFiles, readManifests } from "../shared/crd-files.ts";
import { reportOn, type RunSession } from "../shared/resource-run.ts";

/** What `ksvm migrate -f` is told. */
export interface FilesSession extends RunSession {
  readonly flags: {
    readonly apply: boolean;
    readonly dryRun: boolean;
    readonly maxIdleMs: number;
    readonly maxInFlight: number;
    readonly maxQps: number;
    readonly apiserverEndpoints?: readonly string[] | undefined;
    readonly ignoreApiserver?: readonly string[] | undefined;
  };
  /** Migrates one resource, and reports it. */
  readonly migrate: (name: string) => Promise<ExitCode>;
  /** @throws {KsvmError} where this user may not write the objects or, for a migration, may not migrate */
  readonly assertRights: (resource: Pick<Resource, "group" | "plural">, isMigration: boolean) => Promise<void>;
}

/** Takes each CRD of files from what it is to what its file says, each by itself. The exit code is the worst. */
export async function migrateFiles(session: FilesSession, paths: readonly string[]): Promise<ExitCode> {
  const { crds } = readManifests(await readManifestFiles(paths, session.io));
  const codes: ExitCode[] = [];
  for (const file of crds) {
    codes.push(session.io.signal.aborted ? EXIT.interrupted : await migrateFile(session, file));
  }
  return worstOf(codes);
}

function migrateFile(session: FilesSession, file: CrdManifest): Promise<ExitCode> {
  const { connection, flags, io } = session;
  return reportOn(session, file.name, async ({ log, reporter }) => {
    if (flags.dryRun) return showSteps(session, await check(connection.kube, file, io.signal));
    let migrated: ExitCode = EXIT.done;
    const migrate = async (): Promise<boolean> => {
      migrated = await session.migrate(file.name);
      return migrated === EXIT.done;
    };
    try {
      const { maxIdleMs, maxInFlight, maxQps } = flags;
      const apiServers = { endpoints: flags.apiserverEndpoints, ignored: flags.ignoreApiserver };
      const limits = { isApplied: flags.apply, apiServers, maxIdleMs, maxInFlight, maxQps };
      const [plural = "", ...group] = file.name.split(".");
      const resource = { plural, group: group.join(".") };
      const assertRights = (isMigration: boolean): Promise<void> => session.assertRights(resource, isMigration);
      const { onNotes, ...telling } = tellingOnce(reporter);
      const work = { signal: io.signal, assertRights, migrate, ...telling };
      const end = await upgrade(connection.kube, file, { ...limits, ...work });
      log.debug({ end }, "Upgrade ended");
      onNotes(end.entry.notes);
      return end.outcome === "incomplete"
        ? worstOf([migrated, EXIT.incomplete])
        : finish(reporter, file, flags.apply, end);
    } catch (error) {
      if (whose(error) !== "object" && !isDenial(error)) throw error;
      reporter.error(error);
      return EXIT.wouldFail;
    }
  });
}

/** What there is to know of a file is told once, and so is what is waited for. */
function tellingOnce(reporter: Reporter) {
  const told = new Set<string>();
  const tell = (text: string): void => {
    if (!told.has(text)) reporter.note(text);
    told.add(text);
  };
  const onNotes = (notes: readonly string[]): void => {
    for (const note of notes) tell(`note: ${note}`);
  };
  return {
    onNotes,
    onStep: ({ does, kind, why }: Step, notes: readonly string[]) => {
      onNotes(notes);
      reporter.note(`${kind}: ${does}, because ${why}`);
    },
    onWait: (reason: string) => tell(`waiting: ${reason}`),
  };
}

function showSteps({ format, io }: FilesSession, entry: CheckEntry): ExitCode {
  const { name: resource, ...rest } = entry;
  const line = documentOf("RunEvent", { resource, type: "upgrade-plan", ...rest });
  const text = format === "json" ? JSON.stringify(line) : describeEntry(entry).join("\n");
  io.stdout.write(`${printable(text)}\n`);
  const isRefused = entry.verdict === "refused" || entry.verdict === "data-loss";
  return isRefused ? EXIT.wouldFail : entry.verdict === "unknown" ? EXIT.failed : EXIT.done;
}

function finish(
  reporter: Reporter,
  { source }: CrdManifest,
  isApplied: boolean,
  { entry, outcome }: UpgradeEnd,
): ExitCode {
  if (outcome === "refused") {
    reporter.note(describeRefusal(entry));
    return entry.verdict === "unknown" ? EXIT.failed : EXIT.wouldFail;
  }
  const how = "Apply it by kubectl, Helm or Argo CD, or by ksvm migrate -f with --apply";
  reporter.note(isApplied ? `the CRD is what ${source} says` : `${source} can be applied now. ${how}`);
  return EXIT.done;
}
