import { type Cluster, eventually, type KsvmResult } from "./cluster.ts";
import type { CrdShape, TestKind } from "./crd-fixture.ts";

/** How many objects a slow run has to rewrite. */
export const SLOW_RUN_OBJECTS = 100;

/** Flags that spread those objects over some four seconds and ten pages. */
export const SLOW_FLAGS = ["--max-qps", "25", "--page-size", "10"] as const;

/**
 * Starts a run of several seconds on a stale CRD and waits until its freeze is proven and it rewrites objects.
 * @returns the run's end, in an object: a promise of a promise would wait for it
 */
export async function startSlowRun(
  cluster: Cluster,
  kind: TestKind,
  options: {
    readonly shape?: Partial<CrdShape>;
    readonly flags?: readonly string[];
    readonly signal?: AbortSignal;
  } = {},
): Promise<{ readonly ended: Promise<KsvmResult> }> {
  const { shape, flags = [], signal } = options;
  await cluster.createStale(kind, SLOW_RUN_OBJECTS, shape);
  const ended = cluster.migrate([kind.name, ...SLOW_FLAGS, ...flags], signal === undefined ? {} : { signal });
  await untilRewriting(cluster, kind);
  return { ended };
}

/** Waits until a run has rewritten a page or more. */
export async function untilRewriting(cluster: Cluster, kind: TestKind): Promise<void> {
  const isUnderWay = async (): Promise<boolean> => ((await cluster.storedAs(kind))["v1"] ?? 0) > 15;
  await eventually(isUnderWay, `objects of ${kind.name} are rewritten`);
}
