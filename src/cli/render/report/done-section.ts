import type { MigrationState } from "../../../api/migration.ts";
import type { MigrationLine } from "../../../plan/migration-lines.ts";
import { type Evidence, verificationsIn, workIn } from "../../../report/evidence.ts";
import type { Report } from "../../../report/report.ts";
import { describeResult } from "../describe-event.ts";
import { checkpointOf, freezerText, runStateOf } from "../render-status.ts";
import { describeVerification } from "../render-verification.ts";
import { type Content, type Html, html } from "./html.ts";
import { badge, type Column, grouped, moment, nameText, section, table, type Tone } from "./parts.ts";

const TONES: Readonly<Record<MigrationState, Tone>> = {
  Running: "busy",
  Waiting: "busy",
  Suspended: "plain",
  Pending: "plain",
  Failed: "bad",
  Succeeded: "good",
};

/** What was done, and what was proven. */
export function doneSection(report: Report): Html {
  const tables = [
    verificationsTable(report.evidence),
    resultsTable(report.evidence),
    migrationsTable(report.status.migrations),
    runsTable(report),
    freezesTable(report),
  ].filter((one) => one !== undefined);
  const nothing = html`<p>The cluster has no StorageVersionMigration, no run and no freeze, and no file was given with --evidence.</p>\n`;
  return section("done", "What was done and proven", tables.length === 0 ? nothing : html`${tables}`);
}

/** Of what files tell. */
const TOLD: readonly Column[] = [
  { title: "Resource" },
  { title: "Outcome" },
  { title: "In words", kind: "wide" },
  { title: "At" },
  { title: "From" },
];

function verificationsTable(evidence: readonly Evidence[]): Html | undefined {
  const rows = verificationsIn(evidence).map(({ resource, source, time, verification }) => ({
    cells: [
      nameText(resource),
      verification.outcome === "current" ? badge("all current", "good") : badge(verification.outcome, "warn"),
      describeVerification(verification),
      moment(time),
      nameText(source),
    ],
  }));
  const said =
    "A verification writes every object as it is, through each API server: one that stays as it was is stored as it is to be. The files are as they were given.";
  return ifAny(rows, () => html`<p>${said}</p>\n${table("Verifications, from files", TOLD, { rows })}`);
}

function resultsTable(evidence: readonly Evidence[]): Html | undefined {
  const rows = workIn(evidence).map((told) => ({
    cells: [nameText(told.resource), ...workCells(told), moment(told.time), nameText(told.source)],
  }));
  return ifAny(rows, () => table("Runs of ksvm migrate and ksvm reencrypt, from files", TOLD, { rows }));
}

const OUTCOMES = {
  migrated: ["done", "good"],
  "nothing-to-do": ["nothing to do", "good"],
  incomplete: ["incomplete", "bad"],
  "dry-run": ["dry run", "plain"],
} as const satisfies Record<string, readonly [string, Tone]>;

function workCells(told: ReturnType<typeof workIn>[number]): readonly Content[] {
  switch (told.kind) {
    case "error":
      return [badge("failed", "bad"), `${told.message} [${told.code}]`];
    case "unfinished":
      return [badge("no end", "warn"), "the file ends while it was at work"];
    case "result": {
      const [words, tone] = OUTCOMES[told.result.outcome];
      return [badge(words, tone), describeResult(told.result, told.elapsedMs)];
    }
  }
}

const MIGRATIONS: readonly Column[] = [
  { title: "Resource" },
  { title: "Migration" },
  { title: "State" },
  { title: "Objects", kind: "number" },
  { title: "Failed", kind: "number" },
  { title: "Created" },
  { title: "Ended" },
  { title: "Message", kind: "wide" },
];

function migrationsTable(migrations: readonly MigrationLine[]): Html | undefined {
  const rows = migrations.map((line) => ({
    cells: [
      nameText(line.resource),
      html`${nameText(line.name)}<br><span class="muted">${line.controller === "in-tree" ? "by Kubernetes' own migrator" : "by ksvm"}${line.reencrypts === true ? ", re-encrypts" : ""}</span>`,
      badge(line.state, TONES[line.state]),
      line.progress ?? "-",
      line.counts === undefined ? "-" : grouped(line.counts.failed),
      moment(line.created),
      moment(line.ended),
      line.message ?? "",
    ],
  }));
  const said =
    "What a migration says of itself is as its object has it; the state of a resource below does not rest on it.";
  return ifAny(rows, () => html`<p>${said}</p>\n${table("StorageVersionMigrations", MIGRATIONS, { rows })}`);
}

const RUNS: readonly Column[] = [
  { title: "Resource" },
  { title: "State" },
  { title: "Checkpoint", kind: "number" },
  { title: "By" },
  { title: "Lease" },
];

function runsTable({ now, status: { runs } }: Report): Html | undefined {
  const rows = runs.map((run) => ({
    cells: [nameText(run.resource), runStateOf(run, now), checkpointOf(run), run.holder ?? "-", run.lease],
  }));
  return ifAny(rows, () => table("Runs without a migration object", RUNS, { rows }));
}

const FREEZES: readonly Column[] = [
  { title: "CRD" },
  { title: "Frozen by", kind: "wide" },
  { title: "Lease" },
  { title: "Since" },
];

function freezesTable({ status: { freezes } }: Report): Html | undefined {
  const rows = freezes.map((line) => ({
    cells: [nameText(line.crd), freezerText(line), line.lease ?? "-", moment(line.since)],
  }));
  return ifAny(rows, () => table("Frozen CRDs", FREEZES, { rows }));
}

function ifAny(rows: readonly unknown[], shown: () => Html): Html | undefined {
  return rows.length === 0 ? undefined : shown();
}
