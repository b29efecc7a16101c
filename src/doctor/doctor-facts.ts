import { isIP } from "node:net";
import type { CustomResourceDefinition } from "../api/crd.ts";
import { ApiServerMissing, identityLeases } from "../apiservers/find.ts";
import { findReplicas, shakeHands } from "../certs/replicas.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { freezerOf, isHeld } from "../freeze/freeze.ts";
import { WEBHOOK_NAME } from "../freeze/rule.ts";
import { type InTreeMigration, inTreeMigrations } from "../in-tree/in-tree-migrations.ts";
import { pruneDoubtOf } from "../in-tree/prune-doubt.ts";
import { unlessForbidden } from "../kube/errors.ts";
import { type Lease, WEBHOOK_CONFIGURATIONS } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { projectedPages } from "../old/kube/list-projected.ts";
import { CRDS } from "../old/kube/resources.ts";
import type { CallContext } from "../old/retry/call-context.ts";
import { mapInFlight } from "../old/retry/map-in-flight.ts";
import { isStorageMigrating } from "../plan/lift-by-hand.ts";
import { listedObjects } from "../plan/listed-objects.ts";
import { FREEZER_FIELDS } from "../plan/plan.ts";
import { crdProjection } from "../resources/crds.ts";
import { type CrdFacts, type DoctorFacts, type FoundFreeze, isAtWork, type WebhookFacts } from "./diagnose.ts";

const CRD_PAGE_SIZE = 40;
const CRDS_IN_FLIGHT = 8;
/** Of the schemas nothing is read but what tells a version that a repair brought back. */
const DOCTOR_FIELDS = crdProjection(
  {
    name: "all",
    uid: "all",
    resourceVersion: "all",
    generation: "all",
    deletionTimestamp: "all",
    ...FREEZER_FIELDS,
  },
  {
    version: {
      schema: {
        fields: {
          openAPIV3Schema: {
            fields: { description: { maxLength: 500 }, "x-kubernetes-preserve-unknown-fields": "scalar" },
          },
        },
      },
    },
    status: { conditions: "all" },
  },
);

/**
 * Reads what a diagnosis rests on, and changes nothing. A freeze is watched for as long as the Lease of its run lasts,
 * an identity Lease that looks overdue for 15 s.
 * @param names full names of CRDs; where there are none, every CRD is looked at, and what does not belong to one
 * @throws {KsvmError} ResourceNotFound for a name of no CRD; RetryBudgetExceeded where the API server does not answer;
 *   {ApiError} Forbidden where CRDs may not be read.
 */
export async function readDoctorFacts(context: CallContext, names: readonly string[]): Promise<DoctorFacts> {
  const { signal } = context;
  const crds = names.length === 0 ? await everyCrd(context) : await namedCrds(context, names);
  const factsOf = async (crd: CustomResourceDefinition): Promise<CrdFacts> => ({
    crd,
    objects: await listedObjects(context, crd),
    freeze: await freezeOf(context, crd),
  });
  const facts = await mapInFlight(crds, factsOf, { most: CRDS_IN_FLIGHT, signal });
  const inTree = await readInTree(context);
  const now = await mapInFlight(facts, (one) => asOfNow(context, one, inTree ?? []), { most: CRDS_IN_FLIGHT, signal });
  return {
    crds: now.filter((one) => one !== undefined),
    inTree,
    ...(names.length === 0
      ? { cluster: { silentLeases: await silentLeases(context), webhook: await webhookFacts(context) } }
      : {}),
  };
}

/** The migrations of Kubernetes' own migrator; `undefined` where this user may not list them. */
export function readInTree({ client, retrier, signal }: CallContext): Promise<readonly InTreeMigration[] | undefined> {
  return retrier.run(() => unlessForbidden(inTreeMigrations(client, { signal })), signal);
}

/**
 * A CRD is read again whose freeze may not be that of a live run, or whose condition none of these migrations explains:
 * since it was read, that run may have lifted its freeze and given up its Lease, the migration that explained the
 * condition may have ended, or a run of ksvm may have proven what the one before had pruned.
 * @returns `undefined` where the CRD is gone
 */
async function asOfNow(
  context: CallContext,
  facts: CrdFacts,
  inTree: readonly InTreeMigration[],
): Promise<CrdFacts | undefined> {
  const { crd, freeze } = facts;
  const isOfNote = isStorageMigrating(crd) || pruneDoubtOf(crd) !== undefined;
  const isDoubtful = freeze !== undefined && freeze.isAlive !== true;
  if (!isDoubtful && !(isOfNote && !isAtWork(facts, inTree))) return facts;
  const now = await findCrd(context, crd.metadata.name);
  if (now === undefined) return undefined;
  const owner = freezerOf(now.metadata);
  if (owner === undefined) return { ...facts, crd: now, freeze: undefined };
  // A run that froze it a moment ago is taken for one that lives.
  const isSame = JSON.stringify(owner) === JSON.stringify(freeze?.owner);
  return { ...facts, crd: now, freeze: isSame ? freeze : { owner, isAlive: owner === "other" ? undefined : true } };
}

async function everyCrd({ client, signal }: CallContext): Promise<readonly CustomResourceDefinition[]> {
  const crds: CustomResourceDefinition[] = [];
  const list = { limit: CRD_PAGE_SIZE, projection: DOCTOR_FIELDS, signal };
  for await (const { items } of projectedPages(client.transport, CRDS, list)) {
    crds.push(...(items as CustomResourceDefinition[]));
  }
  return crds.toSorted((a, b) => a.metadata.name.localeCompare(b.metadata.name));
}

async function namedCrds(context: CallContext, names: readonly string[]): Promise<readonly CustomResourceDefinition[]> {
  const crds: CustomResourceDefinition[] = [];
  for (const name of new Set(names)) {
    const crd = await findCrd(context, name);
    if (crd === undefined) {
      throw new KsvmError("ResourceNotFound", `Cannot diagnose "${name}": no CustomResourceDefinition has this name`);
    }
    crds.push(crd);
  }
  return crds;
}

function findCrd(
  { client, retrier, signal }: CallContext,
  name: string,
): Promise<CustomResourceDefinition | undefined> {
  const find = () => client.findFields<CustomResourceDefinition>(CRDS, { name }, DOCTOR_FIELDS, { signal });
  return retrier.run(find, signal);
}

async function freezeOf(
  { client, signal }: CallContext,
  crd: CustomResourceDefinition,
): Promise<FoundFreeze | undefined> {
  const owner = freezerOf(crd.metadata);
  if (owner === undefined || owner === "other") return owner && { owner };
  return { owner, isAlive: await unlessForbidden(isHeld(client.kube, owner, signal)) };
}

/** An API server that lives renews its identity Lease every 10 s, and up to half a second later. */
const WATCH_LEASES_MS = 15_000;
const OVERDUE_MS = 30_000;

/** The identity Leases that were overdue, and stood still while they were watched. */
async function silentLeases({ client: { kube }, signal }: CallContext): Promise<readonly Lease[] | undefined> {
  try {
    const before = await identityLeases(kube, {}, signal);
    // That of the API server that answered is among them, so no clock of this machine takes part.
    const newest = Math.max(...before.map(renewedAt));
    const overdue = before.filter((lease) => newest - renewedAt(lease) > OVERDUE_MS);
    if (overdue.length === 0) return [];
    await kube.clock.sleep(WATCH_LEASES_MS, signal);
    const stood = ({ metadata: { resourceVersion, uid } }: Lease): boolean =>
      overdue.some(({ metadata }) => metadata.uid === uid && metadata.resourceVersion === resourceVersion);
    return (await identityLeases(kube, {}, signal)).filter(stood);
  } catch (error) {
    if (error instanceof ApiServerMissing) return [];
    if (error instanceof KsvmError && error.code === "Forbidden") return undefined;
    throw error;
  }
}

function renewedAt({ spec }: Lease): number {
  return Date.parse(String(spec?.renewTime));
}

const HTTPS_PORT = 443;

/** A ValidatingWebhookConfiguration, as far as it says where the webhook is. */
interface Configuration {
  readonly webhooks?: readonly {
    readonly clientConfig?: {
      readonly url?: string;
      readonly service?: { readonly namespace: string; readonly name: string };
    };
  }[];
}

/**
 * Whether a server answers for ksvm's webhook: of a Service the API server knows the endpoints that serve, a URL is
 * called from here by a TLS handshake.
 */
async function webhookFacts({ client, signal }: CallContext): Promise<WebhookFacts> {
  const path = `${WEBHOOK_CONFIGURATIONS}/${WEBHOOK_NAME}`;
  const find = async (): Promise<{ readonly found: Configuration | undefined }> => ({
    found: await client.kube.find<Configuration>(path, { signal }),
  });
  const read = await retry(client.kube, () => unlessForbidden(find()), { signal });
  if (read === undefined) return { state: "unknown", reason: "this user may not get it" };
  if (read.found === undefined) return { state: "absent" };
  const { service, url } = read.found.webhooks?.[0]?.clientConfig ?? {};
  if (url !== undefined) return urlFacts(url, signal);
  const { name = "", namespace = "" } = service ?? {};
  const replicas = await retry(client.kube, () => findReplicas(client, { namespace, service: name }, signal), {
    signal,
  });
  if (replicas === undefined) {
    return { state: "unknown", reason: `this user may not list endpointslices in ${namespace}` };
  }
  return replicas.length > 0
    ? { state: "answers" }
    : { state: "silent", reason: `Service "${namespace}/${name}" has no endpoint that serves` };
}

async function urlFacts(text: string, signal: AbortSignal): Promise<WebhookFacts> {
  try {
    const { hostname, port } = new URL(text);
    const host = hostname.replaceAll(/[[\]]/g, "");
    const serverName = isIP(host) === 0 ? host : "";
    await shakeHands({ host, port: port === "" ? HTTPS_PORT : Number(port) }, serverName, signal);
    return { state: "answers" };
  } catch (error) {
    signal.throwIfAborted();
    return { state: "silent", reason: `${text} does not answer from here (${messageOf(error)})` };
  }
}
