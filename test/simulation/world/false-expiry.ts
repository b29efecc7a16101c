import type { SimEtcd } from "../model/etcd.ts";
import { identityOf } from "../model/identity-leases.ts";
import type { Schedule } from "./schedule.ts";
import { type SimProcess, timeOf } from "./sim-process.ts";

/** An identity Lease counts for an hour. A minute less covers what a request and a renewal take, in milliseconds. */
const NEARLY_OVER_MS = 3_540_000;

/** An API server. */
interface Server {
  readonly api: { readonly name: string };
  readonly process: SimProcess;
}

/** What a world has clocks of. */
export interface Clocks {
  readonly cluster: { readonly etcd: Pick<SimEtcd, "get">; readonly nodes: readonly Server[] };
  readonly programs: readonly ({ readonly process: SimProcess } | undefined)[];
  readonly schedule: Pick<Schedule, "now">;
}

/**
 * Moves the clock of a process, unless an API server that stands still then seems to have ended: where the clock of an API server and that of
 * ksvm are both more than an hour ahead of its own, ksvm promises nothing (docs/decisions/0010-a-stamp-is-no-proof.md).
 */
export function jumpClock(world: Clocks, process: SimProcess | undefined, byMs: number): void {
  if (process === undefined) return;
  const aheadOf = (other: SimProcess): number => other.aheadMs + (other === process ? byMs : 0);
  const standing = world.cluster.nodes.filter((node) => node.process.isPaused);
  if (!standing.some((node) => seemsEnded(world, node, aheadOf))) process.jump(byMs);
}

/**
 * Whether an API server that stands still from now on would seem to have ended.
 * @param aheadOf how far the clock of a process is ahead, in milliseconds. @default as it is
 */
export function seemsEnded(
  { cluster, programs, schedule }: Clocks,
  { api }: Server,
  aheadOf = ({ aheadMs }: SimProcess): number => aheadMs,
): boolean {
  const lease = cluster.etcd.get(`/registry/leases/kube-system/${identityOf(api.name)}`)?.object;
  const { renewTime } = (lease?.["spec"] ?? {}) as { readonly renewTime?: string };
  const ageMs = timeOf(schedule) - Date.parse(renewTime ?? "");
  const isOver = (process: SimProcess): boolean => ageMs + aheadOf(process) >= NEARLY_OVER_MS;
  const answering = cluster.nodes.filter((node) => node.api !== api);
  return (
    answering.some(({ process }) => isOver(process)) && programs.some((program) => program && isOver(program.process))
  );
}
