import { renderTable } from "../src/cli/render/render-table.ts";
import type { Condition } from "./in-tree.ts";
import { type Aftermath, NEW, OBJECTS, OLD } from "./rejected-object.ts";

/** One tool's way through the case. */
export interface PruneResult extends Aftermath {
  readonly tool: string;
  /** How the migration ended, in the tool's own words. */
  readonly ended: string;
  readonly seconds: number;
  /** Of the StorageVersionMigration; none for ksvm. */
  readonly conditions: readonly Condition[];
  /** The condition StorageMigrating of the CRD, which the in-tree controller sets. */
  readonly crdCondition?: Condition | undefined;
  /** Why it ended so, in the tool's own words. */
  readonly said: string;
}

export interface PruneReport {
  readonly date: string;
  readonly kubernetes: string;
  readonly results: readonly PruneResult[];
}

/** The report as a table with a column for each tool, and below it what tools and API server said. */
export function renderPruneReport({ date, kubernetes, results }: PruneReport): string {
  const row = (title: string, cell: (result: PruneResult) => string): string[] => [title, ...results.map(cell)];
  const table = renderTable([
    row("", ({ tool }) => tool),
    row("the migration ended", ({ ended }) => ended),
    row("after", ({ seconds }) => `${seconds.toFixed(0)} s`),
    row(
      `objects in etcd as ${OLD} / ${NEW}`,
      ({ storedInEtcd: { [OLD]: old = 0, [NEW]: now = 0 } }) => `${old} / ${now}`,
    ),
    row("status.storedVersions", ({ storedVersions }) => `[${storedVersions.join(",")}]`),
    row(`drop ${OLD} from the CRD`, ({ dropOldVersion: { status } }) =>
      status === 200 ? "accepted" : `refused (${status})`,
    ),
    row("objects that GET returns then", ({ reads }) => `${reads.filter(isReadable).length} of ${OBJECTS}`),
  ]);
  return [`Kubernetes ${kubernetes}, ${date.slice(0, 10)}`, "", table, ...results.map(quotes)].join("\n");
}

function quotes({ tool, said, dropOldVersion, reads }: PruneResult): string {
  const refused = dropOldVersion.message === "" ? [] : [`dropping ${OLD}: ${dropOldVersion.message}`];
  const failed = reads
    .filter((read) => !isReadable(read))
    .map(({ name, status, message }) => `GET ${name}: ${status}: ${message}`);
  return [`\n${tool}:`, ...said.split("\n"), ...refused, ...failed].join("\n  ");
}

const isReadable = ({ status }: { readonly status: number }): boolean => status === 200;
