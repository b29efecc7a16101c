import { KsvmError } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { unlessForbidden } from "../kube/errors.ts";
import { CRDS, type KubeObject, METADATA } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { type BuiltInOptions, migrateBuiltIn } from "./migrate-built-in.ts";
import { migrateCrds } from "./migrate-crd.ts";
import type { MigrationEnd } from "./types.ts";

export interface AnyOptions extends BuiltInOptions {
  /** `rewrite` neither freezes a CRD nor prunes it: its storage version must not change meanwhile. @default "manage" */
  readonly crdMode?: "manage" | "rewrite";
}

/** What a user chooses for all runs of a process. */
export type RunSettings = Pick<
  AnyOptions,
  "crdMode" | "endpoints" | "ignored" | "leaseNamespace" | "maxIdleMs" | "maxInFlight" | "maxQps" | "settleMs"
>;

/**
 * Migrates resources: CRDs together, since they share the wait, then built-in ones one after the other. Each ends by
 * itself: one that fails holds up none.
 *
 * @param names `plural.group`, or `plural` in the core group
 * @returns how each ended, in the order of the names
 */
export async function migrate(
  client: Client,
  names: readonly string[],
  options: AnyOptions,
): Promise<readonly MigrationEnd[]> {
  const { crdMode = "manage", signal } = options;
  const ends = new Map<string, MigrationEnd>();
  const end = (one: MigrationEnd): void => {
    ends.set(one.name, one);
    options.onEnd?.(one);
  };
  const crds: string[] = [];
  const others: string[] = [];
  for (const name of new Set(names)) {
    try {
      const isManaged = crdMode === "manage" && (await isCrd(client, name, signal));
      (isManaged ? crds : others).push(name);
    } catch (error) {
      end({ name, error });
    }
  }
  for (const one of await migrateCrds(client, crds, options)) ends.set(one.name, one);
  for (const name of others) {
    try {
      signal.throwIfAborted();
      const result = await migrateBuiltIn(client, name, options);
      // It was none at first, where another client was creating it anew: then nothing was frozen or pruned.
      if (crdMode === "manage" && (await isCrd(client, name, signal))) {
        throw new KsvmError("CrdReplaced", `Cannot migrate "${name}": its CRD was created meanwhile; run again`);
      }
      end({ name, result });
    } catch (error) {
      end({ name, error });
    }
  }
  return [...new Set(names)].map((name) => ends.get(name) ?? { name, error: signal.reason });
}

/** The group of a CRD has a dot. Who may not read CRDs learns from the run which rights it takes. */
async function isCrd(client: Client, name: string, signal: AbortSignal): Promise<boolean> {
  if (name.split(".").length < 3) return false;
  const path = `${CRDS}/${encodeURIComponent(name)}`;
  const read = (): Promise<KubeObject | undefined> => client.find<KubeObject>(path, { accept: METADATA, signal });
  const found = await retry(client, () => unlessForbidden(read().then((crd) => crd !== undefined)), { signal });
  return found ?? true;
}
