import type { ClusterStatus, FreezeLine, LeftOutLine, MigrationLine } from "../../plan/cluster-status.ts";
import type { ResultFormat } from "../flags/run-flags.ts";
import { renderResult } from "./render-result.ts";
import { renderTable } from "./render-table.ts";

/**
 * The text of a status, without a line break at its end.
 * @param now milliseconds since the Unix epoch
 */
export function renderStatus(status: ClusterStatus, format: ResultFormat, now: number): string {
  return renderResult(status, format, () => [
    ...suspendedLine(status),
    ...leftOutLines(status),
    migrationsTable(status.migrations, now),
    freezesTable(status.freezes, now),
  ]);
}

function suspendedLine({ suspended }: ClusterStatus): readonly string[] {
  if (suspended === undefined) {
    return [];
  }
  const by = suspended.by === undefined ? "" : ` by ${suspended.by}`;
  return [`all migrations are suspended since ${suspended.since}${by}; to continue: ksvm resume --all`];
}

function leftOutLines({ leftOut = [] }: ClusterStatus): readonly string[] {
  const lines = leftOut.map(({ name, reason }) => `left out migrations/${name}: it cannot be read: ${reason}`);
  return lines.length === 0 ? [] : [lines.join("\n")];
}

function migrationsTable(migrations: readonly MigrationLine[], now: number): string {
  if (migrations.length === 0) {
    return "no migrations";
  }
  const header = ["NAME", "RESOURCE", "CONTROLLER", "STATE", "PROGRESS", "FAILED", "AGE", "MESSAGE"];
  const rows = migrations.map((line) => [
    line.name,
    line.resource,
    line.controller,
    line.state,
    line.progress ?? "-",
    String(line.counts?.failed ?? "-"),
    ageOf(line.created, now),
    line.message ?? "-",
  ]);
  return renderTable([header, ...rows]);
}

function freezesTable(freezes: readonly FreezeLine[], now: number): string {
  if (freezes.length === 0) {
    return "no CRD is frozen";
  }
  const rows = freezes.map(({ crd, owner, lease, since }) => [
    crd,
    owner ?? "(not ksvm)",
    lease ?? "-",
    ageOf(since, now),
  ]);
  return renderTable([["FROZEN CRD", "BY", "LEASE", "SINCE"], ...rows]);
}

/**
 * What changed between two looks, a line each, for an output that cannot be overwritten.
 */
export function describeChanges(before: ClusterStatus, after: ClusterStatus): readonly string[] {
  const migrations = changesOf(before.migrations, after.migrations, ({ name }) => name, describeMigration);
  const freezes = changesOf(before.freezes, after.freezes, ({ crd }) => crd, describeFreeze);
  const leftOut = changesOf(before.leftOut ?? [], after.leftOut ?? [], ({ name }) => name, describeLeftOut);
  return [...describeSuspended(before, after), ...leftOut, ...migrations, ...freezes];
}

function describeLeftOut(line: LeftOutLine | undefined): string {
  return line === undefined ? "deleted, or can be read again" : `left out, it cannot be read: ${line.reason}`;
}

function describeSuspended(before: ClusterStatus, after: ClusterStatus): readonly string[] {
  const wasSuspended = before.suspended !== undefined;
  if (wasSuspended === (after.suspended !== undefined)) {
    return [];
  }
  return wasSuspended ? ["migrations are no longer suspended"] : suspendedLine(after);
}

function changesOf<T>(
  before: readonly T[],
  after: readonly T[],
  nameOf: (line: T) => string,
  describe: (line: T | undefined) => string,
): readonly string[] {
  const texts = (lines: readonly T[]): ReadonlyMap<string, string> =>
    new Map(lines.map((line) => [nameOf(line), describe(line)]));
  const [old, now] = [texts(before), texts(after)];
  const changed = [...now].filter(([name, text]) => old.get(name) !== text);
  const gone = [...old.keys()].filter((name) => !now.has(name)).map((name) => [name, describe(undefined)] as const);
  return [...changed, ...gone].map(([name, text]) => `${name}: ${text}`);
}

function describeMigration(line: MigrationLine | undefined): string {
  if (line === undefined) {
    return "deleted";
  }
  return [line.state, line.progress, line.message].filter((part) => part !== undefined).join(" ");
}

function describeFreeze(line: FreezeLine | undefined): string {
  return line === undefined ? "no longer frozen" : `frozen by ${line.owner ?? "something other than ksvm"}`;
}

const UNITS = [
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
] as const;

/** How long a time lies back, as kubectl shows it: `45s`, `12m`, `3h`, `4d`. */
export function ageOf(time: string | undefined, now: number): string {
  const seconds = Math.max(0, Math.floor((now - Date.parse(time ?? "")) / 1_000));
  if (Number.isNaN(seconds)) {
    return "-";
  }
  const unit = UNITS.find(([, size]) => seconds >= 2 * size);
  return unit === undefined ? `${seconds}s` : `${Math.floor(seconds / unit[1])}${unit[0]}`;
}
