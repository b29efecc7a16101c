import { type ApiService, isAggregated } from "../api/api-service.ts";
import type { Answers } from "../apiservers/find.ts";
import { type ApiServerEvent, settle } from "../apiservers/settle.ts";
import { KsvmError } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { retry } from "../kube/retry.ts";
import { type BuiltInOptions, evidenceOfAll, migrateBuiltIn } from "../migrator/migrate-built-in.ts";
import type { MigrationEnd, MigrationResult } from "../migrator/types.ts";

type ResourceOptions = Omit<BuiltInOptions, "dryRun" | "force" | "onEnd" | "purpose">;

export interface ReencryptOptions extends Omit<ResourceOptions, "settled"> {
  /** Lists what is to be rewritten again, to find what came meanwhile. @default nothing came */
  readonly listAgain?: (() => Promise<readonly string[]>) | undefined;
  /** Told how a resource ended, each time that it was rewritten. Must not throw. */
  readonly onEnd: (end: MigrationEnd) => void;
  /** Told what is rewritten in another round. Must not throw. */
  readonly onAgain: (names: readonly string[], why: "changed" | "appeared") => void;
}

/** How often all resources are looked at again because API servers changed their encryption in between. */
const MAX_ROUNDS = 5;
/** What events of no single resource are about. */
export const EVERY_RESOURCE = "every resource";

/**
 * Rewrites every object of resources, CRDs included, one resource after the other, so that all are stored by the
 * encryption that every API server uses. Nothing is frozen and nothing pruned.
 *
 * What was rewritten before API servers changed their encryption may have the former key. So all of it is compared at
 * the end, and rewritten again where it differs. So is what came since the resources were listed.
 *
 * @returns what the result of each resource that was rewritten rests on; `undefined` where none was
 * @throws {KsvmError} NotConverged where API servers keep changing; {ApiServerMissing}; the signal's reason. Then it is
 * not known whether all that was rewritten has the same key.
 */
export async function reencrypt(
  client: Client,
  names: readonly string[],
  { listAgain, onAgain, onEnd, ...options }: ReencryptOptions,
): Promise<string | undefined> {
  const { evidence = assumed, signal } = options;
  const settled = new Set<string>();
  const tried = new Set(names);
  const epochs = new Map<string, string>();
  let due: readonly string[] = [...tried];
  for (let round = 1; round <= MAX_ROUNDS; round++) {
    for (const name of due) {
      epochs.delete(name);
      try {
        const result = await reencryptResource(client, name, { ...options, evidence, settled });
        if (result.outcome === "migrated") epochs.set(name, result.epoch ?? "");
        onEnd({ name, result });
      } catch (error) {
        // Of all resources, one that was deleted meanwhile is done.
        const isGone = listAgain !== undefined && error instanceof KsvmError && error.code === "ResourceNotFound";
        onEnd(isGone ? { name, result: { resource: name, outcome: "nothing-to-do" } } : { name, error });
      }
      signal.throwIfAborted();
    }
    const [first] = epochs.values();
    if (first === undefined || (tried.size === 1 && listAgain === undefined)) return first;

    const epoch = await epochNow(client, { ...options, evidence });
    const changed = [...epochs.keys()].filter((name) => epochs.get(name)?.endsWith(epoch) !== true);
    const appeared = ((await listAgain?.()) ?? []).filter((name) => !tried.has(name));
    due = [...changed, ...appeared];
    if (due.length === 0) return epoch;
    if (changed.length > 0) onAgain(changed, "changed");
    if (appeared.length > 0) onAgain(appeared, "appeared");
    for (const name of appeared) tried.add(name);
  }
  const text = "API servers keep coming, going or changing their encryption";
  throw new KsvmError("NotConverged", `Cannot re-encrypt ${EVERY_RESOURCE}: ${text}`);
}

/** In place of evidence, where a user says that every API server encrypts alike. */
async function assumed(): Promise<{ readonly alike: string; readonly own: string }> {
  return { alike: "", own: "" };
}

/**
 * Rewrites every object of one resource, as `migrateBuiltIn` does.
 *
 * @throws {KsvmError} AggregatedApi; as `migrateBuiltIn`
 */
export async function reencryptResource(
  client: Client,
  name: string,
  options: ResourceOptions,
): Promise<MigrationResult> {
  await assertOwnStorage(client, name, options.signal);
  return await migrateBuiltIn(client, name, { ...options, purpose: "reencrypt", force: true });
}

/** The API servers that are asked how they encrypt must be those that store the resource. */
async function assertOwnStorage(client: Client, name: string, signal: AbortSignal): Promise<void> {
  const group = groupOf(name);
  const path = "/apis/apiregistration.k8s.io/v1/apiservices";
  const { items } = await retry(client, () => client.list<ApiService>(path, { signal }), { signal });
  const others = items.filter(isAggregated).map(({ metadata }) => metadata.name);
  // The name of an APIService is that of its version and that of its group.
  const other = others.find((service) => groupOf(service) === group);
  if (other === undefined) return;
  const text =
    `APIService "${other}" hands it to an aggregated API server, which stores it by itself and encrypts it by a ` +
    "configuration of its own; nothing was written; rotate the key there as its documentation says";
  throw new KsvmError("AggregatedApi", `Cannot tell which key "${name}" has: ${text}`);
}

/** What follows the first dot. */
function groupOf(name: string): string {
  return name.split(".").slice(1).join(".");
}

/** Asks every API server once more, and waits for one that cannot be asked. */
async function epochNow(
  client: Client,
  options: ResourceOptions & { readonly evidence: NonNullable<BuiltInOptions["evidence"]> },
): Promise<string> {
  let epoch = "";
  const ask = async (): Promise<Answers<unknown>> => {
    const said = await evidenceOfAll(client, options, options.evidence, options.signal);
    ({ epoch } = said);
    return said.answers;
  };
  const onEvent = (event: ApiServerEvent): void => {
    if (event.type === "waiting") options.onEvent(event, EVERY_RESOURCE);
  };
  // Every resource was waited for already.
  await settle(client, ask, async () => true, { ...options, settleMs: 0, onEvent });
  return epoch;
}
