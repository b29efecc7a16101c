import type { ServedResource } from "../../resources/migratable.ts";
import type { ResumePoint } from "./rewrite/checkpoint.ts";
import type { FieldsConversion } from "./rewrite/convert-fields.ts";
import type { Tally } from "./rewrite/counts.ts";
import type { ListPosition } from "./rewrite/list-position.ts";
import { RewritePass, type RewritePassOptions } from "./rewrite/rewrite-pass.ts";
import { politely } from "./politely.ts";
import type { RunContext } from "./run-context.ts";

/** How {@link rewriteAll} goes about it. */
export interface RewriteAllOptions {
  /** Counts what becomes of the objects. */
  readonly tally: Tally;
  /** Where an earlier attempt stood. @default at the first object */
  readonly resume?: ResumePoint | undefined;
  /** How far that one had listed, where `tally` goes on with its counts. @default at the first object */
  readonly position?: ListPosition | undefined;
  /** Has managedFields converted, too. @default not */
  readonly conversion?: FieldsConversion | undefined;
  /** As `RewritePass` takes it. @default none */
  readonly onPage?: RewritePassOptions["onPage"];
}

/**
 * Rewrites every object of a resource that is requested in one version, or tries it where the run is a dry-run.
 * @throws as `RewritePass.run()`.
 */
export async function rewriteAll(
  context: RunContext,
  resource: ServedResource,
  options: RewriteAllOptions,
): Promise<void> {
  const { conversion, tally, position, resume, onPage } = options;
  const report = (): void => context.emit({ type: "progress", counts: { ...tally.counts } });
  const pass = new RewritePass({
    ...context,
    resource,
    kind: resource.kind,
    scope: resource.scope,
    otherVersions: [],
    pageSize: context.options.pageSize,
    dryRun: context.options.dryRun,
    subresource: context.options.subresource,
    resume,
    ...conversion?.wayOfPass,
    position,
    tally,
    onObject: report,
    onPage: async (settled) => {
      report();
      await onPage?.(settled);
    },
  });
  await politely(context, resource, () => pass.run());
}
