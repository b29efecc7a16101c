import type { BuiltIn } from "./built-in.ts";
import type { ResumePoint } from "./checkpoint.ts";
import type { Tally } from "./counts.ts";
import { RewritePass } from "./rewrite-pass.ts";
import type { RunContext } from "./run-context.ts";

/** How {@link rewriteAll} goes about it. */
export interface RewriteAllOptions {
  /** Counts what becomes of the objects. */
  readonly tally: Tally;
  /** Where an earlier attempt stood. @default at the first object */
  readonly resume?: ResumePoint | undefined;
  /** Told of every page that is done, and waited for. @default nobody is told */
  readonly onPage?: (point: ResumePoint) => Promise<void>;
}

/**
 * Rewrites every object of a resource that is requested in one version, or tries it where the run is a dry-run.
 * @throws as `RewritePass.run()`.
 */
export async function rewriteAll(context: RunContext, resource: BuiltIn, options: RewriteAllOptions): Promise<void> {
  const { tally, resume, onPage } = options;
  const report = (): void => context.emit({ type: "progress", counts: { ...tally.counts } });
  const pass = new RewritePass({
    ...context,
    resource,
    kind: resource.kind,
    otherVersions: [],
    pageSize: context.options.pageSize,
    dryRun: context.options.dryRun,
    resume,
    tally,
    onObject: report,
    onPage: async (point) => {
      report();
      await onPage?.(point);
    },
  });
  await pass.run();
}
