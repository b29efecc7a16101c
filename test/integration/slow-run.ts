import type { ProgramEnd } from "../processes/program.ts";
import { type Cluster, eventually } from "./cluster.ts";
import type { CrdShape, TestKind } from "./crd-fixture.ts";

/** How many objects a slow run has to rewrite. */
export const SLOW_RUN_OBJECTS = 100;

/** Flags that spread those objects over some twelve seconds. */
export const SLOW_FLAGS = ["--max-qps", "8"] as const;

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
): Promise<{ readonly ended: Promise<ProgramEnd> }> {
  const { shape, flags = [], signal } = options;
  await cluster.createStale(kind, SLOW_RUN_OBJECTS, shape);
  const ended = cluster.migrate([kind.name, ...SLOW_FLAGS, ...flags], signal === undefined ? {} : { signal });
  await untilRewriting(cluster, kind, { ended });
  return { ended };
}

/** Flags that spread those objects over some 25 seconds: for a run that is interrupted, however late the test sees it at work. */
export const INTERRUPTED_FLAGS = ["--max-qps", "4"] as const;

/**
 * A run begins with half a dozen proofs, each of which a machine that is busy with others slows down. A minute was not
 * enough at a load of 15; a run that ends is not waited for.
 */
const REWRITING_WITHIN_MS = 300_000;

/**
 * Waits until a run has rewritten a page or more.
 * @param run ends the wait with what it said, where it ends before that. @default nothing but the bound ends it
 */
export async function untilRewriting(
  cluster: Cluster,
  kind: TestKind,
  run?: { readonly ended: Promise<ProgramEnd> },
): Promise<void> {
  let end: ProgramEnd | undefined;
  void run?.ended.then((result) => (end = result));
  const isUnderWay = async (): Promise<boolean> => {
    const ended = end;
    const isRewriting = ((await cluster.storedAs(kind))["v1"] ?? 0) > 15;
    if (!isRewriting && ended !== undefined) {
      throw new Error(`the run ended with ${ended.code} before it rewrote:\n${ended.stdout}${ended.stderr}`);
    }
    return isRewriting;
  };
  await eventually(isUnderWay, `objects of ${kind.name} are rewritten`, REWRITING_WITHIN_MS);
}
