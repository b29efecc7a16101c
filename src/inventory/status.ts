import { withoutUndefined } from "../api/json-fields.ts";
import {
  CONTROLLER_LEASE,
  MIGRATION_STATES,
  type MigrationState,
  type MigrationStatus,
  MIGRATIONS,
  resourceNameOf,
  stateOf,
  type StorageVersionMigration,
  SYSTEM_NAMESPACE,
} from "../api/migration.ts";
import { parseMigration } from "../api/parse-migration.ts";
import { freezerOf } from "../freeze/freeze.ts";
import type { Client } from "../kube/client.ts";
import { unlessForbidden, whose } from "../kube/errors.ts";
import { CRDS, type Lease, LEASES, METADATA_LIST, type ObjectMeta } from "../kube/objects.ts";
import { type InTreeMigration, inTreeMigrations, inTreeResource, inTreeState } from "../migrator/in-tree.ts";
import { DEFAULT_LEASE_NAMESPACE, leaseName } from "../migrator/run-lease.ts";
import { ask, everyItem } from "./inventory.ts";

/** What is going on in a cluster. Field names, here and below, are those of `ksvm status -o json`. */
export interface ClusterStatus {
  readonly controller: ControllerLine;
  /** What is under way first. */
  readonly migrations: readonly MigrationLine[];
  /** Runs that hold a Lease, or left a checkpoint there. */
  readonly runs: readonly RunLine[];
  readonly freezes: readonly FreezeLine[];
  /** What this user may not see, or nobody can read, and why. */
  readonly unknown: readonly string[];
}

/** A Lease and its holder. */
export interface LeaseLine {
  /**
   * `alive`: renewed within its duration. `silent`: not, so its holder was killed, or cannot reach the API server.
   * `released`: it has no holder. `unknown`: renewed in the future, by the clock of the API server that answered.
   */
  readonly state: "alive" | "silent" | "released" | "unknown";
  /** `namespace/name`. */
  readonly lease: string;
  readonly holder?: string;
  /** RFC 3339, by the clock of the holder. */
  readonly renewed?: string;
}

/** A run on one resource: of `ksvm migrate`, `reencrypt` or `doctor`, or of a controller. */
export interface RunLine extends LeaseLine {
  readonly resource: string;
}

/** Whether a controller leads: its Lease, or why there is none to show. */
export type ControllerLine =
  | LeaseLine
  | { readonly state: "none" }
  | { readonly state: "unknown"; readonly reason: string };

/** One migration, by any migrator. */
export interface MigrationLine extends Pick<MigrationStatus, "counts" | "failures" | "progress"> {
  readonly name: string;
  /** `plural.group`, the plural alone in the core group. */
  readonly resource: string;
  /** `in-tree` is Kubernetes' own migrator. */
  readonly controller: "ksvm" | "in-tree";
  readonly state: MigrationState;
  /** Why it is in this state, in one word. */
  readonly reason?: string;
  /** The same, with what there is to say of it. */
  readonly message?: string;
  /** RFC 3339. */
  readonly created?: string;
  /** When it ended, RFC 3339. */
  readonly ended?: string;
}

/** A freeze of a CRD. What another client froze has no owner. */
export interface FreezeLine {
  readonly crd: string;
  readonly owner?: string;
  /** `namespace/name` of the Lease that says whether its owner lives. */
  readonly lease?: string;
  /** RFC 3339. */
  readonly since?: string;
}

const CONTROLLER = `${SYSTEM_NAMESPACE}/${CONTROLLER_LEASE}`;

/**
 * Reads every migration, every run and every freeze. `unknown` names what this user may not see.
 * @throws {ApiError} where it may not see migrations or CRDs
 */
export async function readStatus(client: Client, signal: AbortSignal): Promise<ClusterStatus> {
  const unknown: string[] = [];
  const migrations = await readMigrations(client, unknown, signal);
  const own = await readLeases(client, SYSTEM_NAMESPACE, signal);
  const shared = await readLeases(client, DEFAULT_LEASE_NAMESPACE, signal);
  const hidden = "this user may not list Leases in namespace";
  if (own === undefined) unknown.push(`runs: ${hidden} ${SYSTEM_NAMESPACE}`);
  if (shared === undefined) unknown.push(`runs: ${hidden} ${DEFAULT_LEASE_NAMESPACE}`);
  const unseen = { state: "unknown", reason: `${hidden} ${SYSTEM_NAMESPACE}` } as const;
  const controller = own?.find(({ lease }) => lease === CONTROLLER) ?? (own ? ({ state: "none" } as const) : unseen);
  const prefix = `/${leaseName("")}`;
  const runs = [...(own ?? []), ...(shared ?? [])].flatMap((line): readonly RunLine[] => {
    const [, resource] = line.lease.split(prefix);
    return resource === undefined ? [] : [{ ...line, resource }];
  });
  const freezes: FreezeLine[] = [];
  for await (const { metadata } of everyItem(client, CRDS, signal, METADATA_LIST)) {
    const freezer = freezerOf(metadata);
    if (freezer === undefined) continue;
    const { identity: owner, lease, since } = freezer === "other" ? {} : freezer;
    freezes.push(withoutUndefined<FreezeLine>({ crd: metadata.name, owner, lease, since }));
  }
  return { controller, migrations, runs, freezes, unknown };
}

/** The migrations of both migrators that were not deleted. */
async function readMigrations(
  client: Client,
  unknown: string[],
  signal: AbortSignal,
): Promise<readonly MigrationLine[]> {
  const lines: MigrationLine[] = [];
  try {
    for await (const item of everyItem(client, MIGRATIONS, signal)) {
      const { object, unreadable } = parseMigration(item);
      if (object === undefined) unknown.push(`migrations/${unreadable.name}: ${unreadable.problem}`);
      else if (object.metadata.deletionTimestamp === undefined) lines.push(migrationLine(object));
    }
  } catch (error) {
    // Their CRD need not be installed.
    if (whose(error) !== "gone") throw error;
  }
  const inTree = await inTreeMigrations(client, signal);
  if (inTree === undefined) unknown.push("migrations of Kubernetes' own migrator: this user may not list them");
  for (const migration of inTree ?? []) {
    const { metadata, status } = migration;
    const state = inTreeState(migration);
    lines.push(lineOf(metadata, inTreeResource(migration), "in-tree", state, status?.conditions));
  }
  const rank = ({ state }: MigrationLine): number => MIGRATION_STATES.indexOf(state);
  return lines.toSorted((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

/** How a StorageVersionMigration is shown. */
export function migrationLine(migration: StorageVersionMigration): MigrationLine {
  const { metadata, spec, status = {} } = migration;
  const { completionTime: ended, counts, failures, progress } = status;
  const line = lineOf(metadata, resourceNameOf(spec.resource), "ksvm", stateOf(migration), status.conditions);
  return withoutUndefined<MigrationLine>({ ...line, progress, counts, failures, ended });
}

function lineOf(
  { creationTimestamp: created, name }: Pick<ObjectMeta, "creationTimestamp" | "name">,
  resource: string,
  controller: MigrationLine["controller"],
  state: MigrationState,
  conditions: NonNullable<InTreeMigration["status"]>["conditions"],
): MigrationLine {
  const condition = conditions?.find(({ status, type }) => type === state && status === "True");
  const reason = condition?.reason || undefined;
  const message = [reason, condition?.message].filter(Boolean).join(": ") || undefined;
  return withoutUndefined<MigrationLine>({ name, resource, controller, state, reason, message, created });
}

/** The Date of an answer has whole seconds. */
const ROUNDING_MS = 2_000;

/** @returns `undefined` where this user may not list them */
async function readLeases(
  client: Client,
  namespace: string,
  signal: AbortSignal,
): Promise<readonly LeaseLine[] | undefined> {
  const list = () => client.listWithSize<Lease>(`${LEASES}/${namespace}/leases`, { signal });
  const answer = await unlessForbidden(ask(client, list, signal));
  // By the clock of an API server: that of this machine may be wrong.
  const now = answer?.date ?? client.clock.now();
  return answer?.body.items.map(({ metadata, spec }) => {
    const holder = spec?.holderIdentity || undefined;
    const renewed = spec?.renewTime && String(spec.renewTime);
    const ageMs = now - Date.parse(renewed ?? "");
    const isAlive = Math.abs(ageMs) <= (spec?.leaseDurationSeconds ?? 0) * 1_000 + ROUNDING_MS;
    const held = isAlive ? "alive" : ageMs < 0 ? "unknown" : "silent";
    const state = holder === undefined ? "released" : held;
    return withoutUndefined<LeaseLine>({ state, lease: `${namespace}/${metadata.name}`, holder, renewed });
  });
}
