import { isDeepStrictEqual } from "node:util";
import { resourceNameOf } from "../api/migration.ts";
import { besideHelm } from "../api/ours.ts";
import { isServed } from "../old/kube/absent.ts";
import type { KubeObject } from "../old/kube/client.ts";
import { APPLY_PATCH, CRDS, MIGRATIONS } from "../old/kube/resources.ts";
import { earlierMigrations } from "./earlier-migrations.ts";
import { discoverFor, FIELD_MANAGER, type InitOptions, type InitResult, othersToReplace } from "./initialize.ts";
import { type ShippedCrd, shippedCrds } from "./shipped-crds.ts";
import type { InitContext } from "./when-served.ts";

/**
 * What {@link initialize} would do; it writes nothing. The CRDs are sent as dry runs, so that the API servers and their admission
 * have a say.
 * @throws as `initialize()`.
 */
export async function previewInit(context: InitContext, options: InitOptions): Promise<InitResult> {
  const others = await othersToReplace(context, options);
  const crds: InitResult["crds"][number][] = [];
  for (const crd of shippedCrds()) {
    crds.push({ name: crd.metadata.name, result: await tryCrd(context, crd) });
  }
  const { migratable, skipped, unread } = await discoverFor(context, options);
  const unknownGroups = new Set([...skipped, ...unread].flatMap(({ group }) => group ?? []));
  const renewed = new Set(migratable.map(resourceNameOf));
  const { earlier, left } = await present(context, { renewed, unknownGroups, reencryption: options.reencryption });
  const kept = [...left].map(([resource, reason]) => ({ resource, reason }));
  return {
    isDryRun: true,
    replaced: others.map(({ name, namespace }) => ({ namespace, name })),
    crds,
    deleted: earlier.length,
    migrations: migratable
      .filter((one) => !left.has(resourceNameOf(one)))
      .map((one) => ({ name: "", resource: resourceNameOf(one), version: one.version })),
    skipped: [...skipped, ...kept],
    unread,
  };
}

/** What {@link initialize} would delete. */
export interface Deletions {
  /** Deployments of other migrators, as `namespace/name`. */
  readonly deployments: readonly string[];
  /** Migrations of an earlier init; some of them may stay, where nothing can take their place. */
  readonly migrations: number;
}

/**
 * What {@link initialize} would delete at most.
 * @throws {KsvmError} OtherMigratorActive.
 */
export async function deletionsOf(context: InitContext, options: InitOptions): Promise<Deletions> {
  const others = await othersToReplace(context, options);
  const all = { renewed: EVERY_RESOURCE, unknownGroups: new Set<string>(), reencryption: options.reencryption };
  const { earlier } = await present(context, all);
  return { deployments: others.map(({ name, namespace }) => `${namespace}/${name}`), migrations: earlier.length };
}

/** Has every name. */
const EVERY_RESOURCE: ReadonlySet<string> = Object.assign(new Set<string>(), { has: () => true });

type Present = Awaited<ReturnType<typeof earlierMigrations>>;

/** There are none where their CRD is not there yet. */
async function present(context: InitContext, discovered: Parameters<typeof earlierMigrations>[1]): Promise<Present> {
  const { client, retrier, signal } = context;
  return (await retrier.run(() => isServed(client.transport, MIGRATIONS, { signal }), signal))
    ? await earlierMigrations(context, discovered)
    : { earlier: [], left: new Map() };
}

async function tryCrd(
  { client, retrier, signal }: InitContext,
  crd: ShippedCrd,
): Promise<InitResult["crds"][number]["result"]> {
  const ref = { name: crd.metadata.name };
  const before = await retrier.run(() => client.find<KubeObject>(CRDS, ref, { signal }), signal);
  const options = { fieldManager: FIELD_MANAGER, force: true, dryRun: true, signal };
  const patch = { type: APPLY_PATCH, body: besideHelm(crd, before) };
  const after = await retrier.run(() => client.patch<KubeObject>(CRDS, ref, patch, options), signal);
  if (before === undefined) {
    return "created";
  }
  return isDeepStrictEqual(contentOf(before), contentOf(after)) ? "unchanged" : "updated";
}

/** A dry run does not say by a resourceVersion whether anything changed. */
function contentOf({ metadata, ...rest }: KubeObject): object {
  const { spec } = rest as { readonly spec?: unknown };
  return { labels: metadata.labels, annotations: metadata.annotations, spec };
}
