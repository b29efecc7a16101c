import { randomUUID } from "node:crypto";
import type { Clock } from "../clock.ts";
import { type ApiClient, isConflict } from "../kube/client.ts";
import { isNotFound } from "../kube/absent.ts";
import { apiVersionOf, type Resource } from "../kube/resources.ts";
import { type InTreeMigration, listInTree, parseInTree, type StatusWriter } from "../in-tree/in-tree-migrations.ts";
import { messageOf } from "../errors.ts";
import { type OtherWriter, othersOf } from "./other-writers.ts";

/** What a probe is of: no API server serves it. */
const PROBED = { group: "probe.ksvm.sigs.k8s.io", resource: "nothings" } as const;
/** The in-tree controller says within milliseconds that a migration runs. Its replicas take 15 s to notice that one of them is gone. */
const PROBE_MS = 30_000;
const POLL_MS = 500;
const UNKNOWN: StatusWriter = { manager: "unknown", time: "" };

/** What a probe needs. */
export interface ProbeContext {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Migrations of Kubernetes' own migrator, in the version that is served. */
  readonly resource: Resource;
  /** Milliseconds that another client has to answer. @default 30 s */
  readonly probeMs?: number | undefined;
}

/** Whether it is the probe of some replica. */
export function isProbe({ spec: { resource } }: InTreeMigration): boolean {
  return resource.group === PROBED.group && resource.resource === PROBED.resource;
}

/**
 * Creates a migration of a resource that does not exist, and waits whether another client sets its status: no API tells whether
 * Kubernetes' own migrator is at work. The probe is deleted on every way out, as are those that killed processes left.
 * @returns the client that did; `undefined` where none does
 * @throws {ApiError | TransportError} 403 where the user may not create or delete one; the signal's reason.
 */
export async function probeForOthers(context: ProbeContext): Promise<OtherWriter | undefined> {
  const { client, resource, signal } = context;
  for (const { metadata } of (await listInTree(client, resource, { signal })).filter(isProbe)) {
    await remove(context, metadata.name);
  }
  const name = `ksvm-probe-${randomUUID()}`;
  const probe = {
    apiVersion: apiVersionOf(resource.group, resource.version),
    kind: "StorageVersionMigration",
    metadata: { name },
    spec: { resource: PROBED },
  };
  await client.create(resource, probe, { signal });
  try {
    return await watched(context, name);
  } finally {
    await remove(context, name);
  }
}

async function watched(context: ProbeContext, name: string): Promise<OtherWriter | undefined> {
  const { client, clock, probeMs = PROBE_MS, resource, signal } = context;
  const deadline = clock.monotonic() + probeMs;
  while (clock.monotonic() < deadline) {
    await clock.sleep(POLL_MS, signal);
    const answer = await client.find<unknown>(resource, { name }, { signal });
    if (answer === undefined) {
      throw new ProbeGone(name);
    }
    const other = writerOf(answer);
    if (other !== undefined) {
      return other;
    }
  }
  return undefined;
}

/** Also where managedFields were emptied: this program writes no status of a probe. */
function writerOf(answer: unknown): OtherWriter | undefined {
  const probe = parseInTree(answer);
  if (probe === undefined) {
    return undefined;
  }
  const { conditions, resourceVersion } = probe.status ?? {};
  const isWritten = (conditions ?? []).length > 0 || resourceVersion !== undefined;
  const [other = isWritten ? UNKNOWN : undefined] = othersOf(probe);
  return other && { migration: probe.metadata.name, manager: other.manager };
}

/** A probe that another client deleted tells nothing. */
class ProbeGone extends Error {
  constructor(name: string) {
    super(`Cannot tell whether another client serves migrations: another client deleted the probe "${name}"`);
  }
}

/** With a signal of its own: it goes also where this process is told to stop. */
async function remove({ client, clock, resource }: ProbeContext, name: string): Promise<void> {
  try {
    await client.delete(resource, { name }, { signal: clock.timeout(10_000) });
  } catch (error) {
    if (!isNotFound(error) && !isConflict(error)) {
      throw new Error(`Cannot delete the probe "${name}": ${messageOf(error)}`, { cause: error });
    }
  }
}
