import { readFileSync } from "node:fs";
import { parse } from "yaml";

const FOLDER = new URL("../../deploy/components/monitoring/", import.meta.url);

/** A rule of a PrometheusRule: one that records, or one that alerts. */
export interface Rule {
  readonly record?: string;
  readonly alert?: string;
  readonly expr: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** What Prometheus reads as a file of rules. */
export interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

interface Panel {
  readonly type: string;
  readonly title: string;
  readonly targets?: readonly { readonly expr: string }[];
}

/** A query of the dashboard. */
export interface Query {
  readonly panel: string;
  readonly expr: string;
}

/** The text of a file of deploy/components/monitoring. */
export function monitoringFile(name: string): string {
  return readFileSync(new URL(name, FOLDER), "utf8");
}

/** The groups of both PrometheusRules. */
export function ruleFile(): RuleFile {
  const specs = ["alerts.yaml", "objectives.yaml"].map((name) => parse(monitoringFile(name)) as { spec: RuleFile });
  return { groups: specs.flatMap(({ spec }) => spec.groups) };
}

/** Every rule of both PrometheusRules. */
export function allRules(): readonly Rule[] {
  return ruleFile().groups.flatMap(({ rules }) => rules);
}

/** Every query of the dashboard. */
export function dashboardQueries(): readonly Query[] {
  const { panels } = JSON.parse(monitoringFile("dashboard.json")) as { readonly panels: readonly Panel[] };
  return panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ panel: title, expr })));
}
