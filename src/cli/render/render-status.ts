import { CONTROLLER_LEASE, MIGRATION_GROUP } from "../../api/migration.ts";
import type {
  ClusterStatus,
  ControllerLine,
  FreezeLine,
  LeaseLine,
  MigrationLine,
  RunLine,
} from "../../inventory/status.ts";
import { IN_TREE_GROUP } from "../../migrator/in-tree.ts";
import { documentOf } from "./document.ts";
import { renderResult } from "./render-result.ts";
import { renderTable } from "./render-table.ts";

/** The values of `ksvm status -o`. */
export const STATUS_FORMATS = ["table", "name", "json", "yaml"] as const;
/** One of {@link STATUS_FORMATS}. */
export type StatusFormat = (typeof STATUS_FORMATS)[number];

/**
 * The text of a status, without a line break at its end.
 * @param now milliseconds since the Unix epoch
 */
export function renderStatus(status: ClusterStatus, format: StatusFormat, now: number): string {
  if (format === "name") return status.migrations.map(migrationName).join("\n");
  return renderResult(documentOf("Status", status), format, () => [
    [
      `controller: ${controllerText(status.controller, now)}`,
      ...status.unknown.map((what) => `not known: ${what}`),
    ].join("\n"),
    migrationsTable(status.migrations, now),
    ...runsTable(status.runs, now),
    freezesTable(status.freezes, now),
  ]);
}

/** A migration as kubectl takes it, and as `kubectl get -o name` shows it. */
export function migrationName({ controller, name }: MigrationLine): string {
  return `storageversionmigration.${controller === "ksvm" ? MIGRATION_GROUP : IN_TREE_GROUP}/${name}`;
}

/** Whether a controller leads, in words. @param now milliseconds since the Unix epoch */
function controllerText(controller: ControllerLine, now: number): string {
  if (controller.state === "none") {
    return `none: there is no Lease ${CONTROLLER_LEASE}`;
  }
  if (!("lease" in controller)) {
    return `unknown: ${controller.reason}`;
  }
  const { holder = "", lease, renewed, state } = controller;
  const age = ageOf(renewed, now);
  const texts = {
    alive: `running: ${holder} leads, last sign of life ${age} ago (Lease ${lease})`,
    silent: `no sign of life for ${age} from ${holder}, which led last (Lease ${lease}); no migration goes on until a replica leads`,
    released: `stopped: no replica holds Lease ${lease} for ${age}`,
    unknown: `unknown: ${holder} renewed Lease ${lease} at ${renewed ?? "an unknown time"}, which is in the future`,
  };
  return texts[state];
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

function runsTable(runs: readonly RunLine[], now: number): readonly string[] {
  if (runs.length === 0) {
    return [];
  }
  const rows = runs.map((run) => [run.resource, runStateOf(run, now), run.holder ?? "-", run.lease]);
  return [renderTable([["RUN", "STATE", "BY", "LEASE"], ...rows])];
}

/** How a run stands by its Lease, in words. @param now milliseconds since the Unix epoch */
function runStateOf({ renewed, state }: LeaseLine, now: number): string {
  const age = ageOf(renewed, now);
  const texts = {
    alive: `Running, last sign of life ${age} ago`,
    silent: renewed === undefined ? "no sign of life" : `no sign of life for ${age}`,
    released: renewed === undefined ? "interrupted" : `interrupted ${age} ago`,
    unknown: "unknown: its Lease was renewed in the future",
  };
  return texts[state];
}

function freezesTable(freezes: readonly FreezeLine[], now: number): string {
  if (freezes.length === 0) {
    return "no CRD is frozen";
  }
  const rows = freezes.map((line) => [line.crd, line.owner ?? "(not ksvm)", line.lease ?? "-", ageOf(line.since, now)]);
  return renderTable([["FROZEN CRD", "BY", "LEASE", "SINCE"], ...rows]);
}

/**
 * What changed between two looks, a line each, for an output that cannot be overwritten.
 */
export function describeChanges(before: ClusterStatus, after: ClusterStatus): readonly string[] {
  const migrations = changesOf(before.migrations, after.migrations, ({ name }) => name, describeMigration);
  const runs = changesOf(before.runs, after.runs, ({ lease }) => `run of Lease ${lease}`, describeRun);
  const freezes = changesOf(before.freezes, after.freezes, ({ crd }) => crd, describeFreeze);
  return [...describeController(before, after), ...migrations, ...runs, ...freezes];
}

function describeController(
  { controller: before }: ClusterStatus,
  { controller: after }: ClusterStatus,
): readonly string[] {
  const [was, is] = [before, after].map((line) => `${line.state}${"holder" in line ? ` ${line.holder}` : ""}`);
  return was === is ? [] : [`controller: ${is ?? ""}`];
}

function describeRun(run: RunLine | undefined): string {
  return run === undefined ? "ended" : [run.state, run.holder ?? ""].join(" ").trimEnd();
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
