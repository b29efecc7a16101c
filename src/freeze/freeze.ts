import { createHash } from "node:crypto";
import { KsvmError } from "../errors.ts";
import { EpochChanged, epochOf } from "../apiservers/converge.ts";
import type { Client } from "../kube/client.ts";
import { unlessForbidden, whose } from "../kube/errors.ts";
import {
  BINDINGS,
  type Crd,
  CRDS,
  type KubeObject,
  type Lease,
  LEASES,
  type ObjectMeta,
  POLICIES,
  WEBHOOK_CONFIGURATIONS,
} from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { CRD_FIELD_MANAGER, type Guard, MIGRATING, MIGRATING_VALUE, OWNER, policySpec, WEBHOOK_NAME } from "./rule.ts";

/** Who froze a CRD: the Lease that says whether its run lives, and which run it is. */
export interface FreezeOwner {
  /** `namespace/name` of the Lease that the run holds. */
  readonly lease: string;
  /** Unique to one run. */
  readonly identity: string;
  /** When the run began, RFC 3339. */
  readonly since: string;
}

/** Reads the owner annotation; `undefined` where this program did not write it. */
export function parseOwner(text: string | undefined): FreezeOwner | undefined {
  try {
    const owner = JSON.parse(text ?? "") as Partial<FreezeOwner> | null;
    const isOwner = [owner?.lease, owner?.identity, owner?.since].every((value) => typeof value === "string");
    return isOwner ? (owner as FreezeOwner) : undefined;
  } catch {
    return undefined;
  }
}

/** Whether the freeze of a CRD is that of this run. */
export function isFrozenBy({ metadata: { annotations } }: Pick<Crd, "metadata">, identity: string): boolean {
  return annotations?.[MIGRATING] !== undefined && parseOwner(annotations[OWNER])?.identity === identity;
}

/**
 * The run that froze a CRD; `"other"` for another client; `undefined` where it is not frozen. The owner annotation
 * alone does not tell: it stays behind where a user lifts a freeze with kubectl, and would claim the freeze that the
 * user adds later. So the API server's note of who wrote the migrating annotation decides.
 */
export function freezerOf({ annotations = {}, managedFields = [] }: ObjectMeta): FreezeOwner | "other" | undefined {
  const value = annotations[MIGRATING];
  if (value === undefined) return undefined;
  const managers = managedFields
    .filter(({ fieldsV1 }) => {
      const fields = fieldsV1 as { "f:metadata"?: { "f:annotations"?: object } } | undefined;
      return Object.hasOwn(fields?.["f:metadata"]?.["f:annotations"] ?? {}, `f:${MIGRATING}`);
    })
    .map(({ manager }) => manager);
  // Another client may have emptied managedFields. Others of the API server's own are what was there before.
  const ours = [CRD_FIELD_MANAGER, "ancient-changes", "before-first-apply"];
  const isOurs = managers.some((manager = "") => ours.includes(manager));
  const mayBeOurs = managers.length === 0 && value === MIGRATING_VALUE;
  return isOurs || mayBeOurs ? (parseOwner(annotations[OWNER]) ?? "other") : "other";
}

/** The webhook where its configuration is installed, else a policy for this one CRD. */
export async function chooseGuard(client: Client, crdName: string, signal: AbortSignal): Promise<Guard> {
  const path = `${WEBHOOK_CONFIGURATIONS}/${WEBHOOK_NAME}`;
  const find = (): Promise<unknown> =>
    // Who may not see it installs a policy, which does no harm beside the webhook.
    unlessForbidden(client.find(path, { signal }));
  const isInstalled = (await retry(client, find, { signal })) !== undefined;
  return isInstalled ? { kind: "webhook", name: WEBHOOK_NAME } : { kind: "policy", name: policyName(crdName) };
}

const MAX_NAME = 253;

/**
 * The policy and its binding have the same name. A hash stands for that of a CRD which leaves no room for the prefix.
 */
export function policyName(crdName: string): string {
  const name = `ksvm-freeze.${crdName}`;
  if (name.length <= MAX_NAME) return name;
  const hash = createHash("sha256").update(crdName).digest("hex").slice(0, 32);
  return `${name.slice(0, MAX_NAME - hash.length - 1).replace(/[.-]+$/, "")}.${hash}`;
}

const LABELS = { "app.kubernetes.io/managed-by": "ksvm" };
const MAX_CONFLICTS = 20;

/**
 * Puts the guard in place where that is this run's business, and annotates the CRD. The caller holds the Lease of the
 * run, so the freeze of another run was left by one that died, and is taken over.
 *
 * @param epoch the CRD must still be of it
 * @returns the CRD as it is frozen
 * @throws {EpochChanged}; {KsvmError} ForeignFreeze where another client froze it; AlreadyMigrating where a run did that
 * lives, and has its Lease in another namespace
 */
export async function freeze(
  client: Client,
  epoch: Crd,
  { guard, owner, signal }: { readonly guard: Guard; readonly owner: FreezeOwner; readonly signal: AbortSignal },
): Promise<Crd> {
  const { name } = epoch.metadata;
  for (let conflicts = 0; conflicts < MAX_CONFLICTS; conflicts++) {
    const crd = await retry(client, () => client.get<Crd>(`${CRDS}/${name}`, { signal }), { signal });
    if (epochOf(crd) !== epochOf(epoch)) throw new EpochChanged(name, "the spec of the CRD changed");
    if (isFrozenBy(crd, owner.identity)) return crd;
    const freezer = freezerOf(crd.metadata);
    if (freezer === "other") throw foreignFreeze(name);
    if (freezer !== undefined && freezer.lease !== owner.lease && (await isHeld(client, freezer, signal))) {
      const text = `"${freezer.identity}" is migrating it (Lease "${freezer.lease}"); wait for it to end`;
      throw new KsvmError("AlreadyMigrating", `Cannot migrate "${name}": ${text}`);
    }
    // The owner goes first, and is not broken off: a claim that arrives after the run would name a run that is over.
    // So a freeze that arrives late fails: the run took its claim off when it ended, and moved the resourceVersion.
    const claimed = await annotate(client, crd, { [OWNER]: JSON.stringify(owner) }, new AbortController().signal);
    signal.throwIfAborted();
    if (claimed === undefined) continue;
    if (guard.kind === "policy") await installPolicy(client, name, owner);
    // One that a dead run left would deny before the webhook is asked.
    else await removePolicy(client, name, { signal });
    const frozen = await annotate(client, claimed, { [MIGRATING]: MIGRATING_VALUE }, signal);
    if (frozen !== undefined) return frozen;
  }
  throw new EpochChanged(name, "other clients kept writing the CRD");
}

/** What a run says that finds the freeze of another client. */
export function foreignFreeze(name: string): KsvmError {
  return new KsvmError(
    "ForeignFreeze",
    `Cannot migrate "${name}": its storage version is frozen by something other than ksvm (annotation ${MIGRATING}); ` +
      `wait for it to end, or lift the freeze with: kubectl annotate crd ${name} ${MIGRATING}-`,
  );
}

/** Lifts the freeze of another client. That of a run which came meanwhile stays. */
export async function liftForeignFreeze(client: Client, crdName: string, signal: AbortSignal): Promise<void> {
  for (let conflicts = 0; conflicts < MAX_CONFLICTS; conflicts++) {
    const crd = await retry(client, () => client.find<Crd>(`${CRDS}/${crdName}`, { signal }), { signal });
    if (crd === undefined || freezerOf(crd.metadata) !== "other") return;
    if ((await annotate(client, crd, { [MIGRATING]: null, [OWNER]: null }, signal)) !== undefined) return;
  }
}

/** Writes annotations, with what was read as precondition. @returns `undefined` where it was another object by then */
async function annotate(
  client: Client,
  { metadata: { name, resourceVersion, uid } }: Crd,
  annotations: Readonly<Record<string, string | null>>,
  signal: AbortSignal,
  forMs?: number,
): Promise<Crd | undefined> {
  const body = { metadata: { uid, resourceVersion, annotations } };
  const options = { fieldManager: CRD_FIELD_MANAGER, signal };
  const write = (): Promise<Crd> => client.patch<Crd>(`${CRDS}/${name}`, body, options);
  try {
    return await retry(client, write, { signal, ...(forMs === undefined ? {} : { forMs }) });
  } catch (error) {
    if (whose(error) === "conflict") return undefined;
    throw error;
  }
}

/**
 * Applied, so that one which a dead run left has the content of this program by then. Not broken off half way: what is
 * under way could arrive after the run has removed its policy.
 */
async function installPolicy(client: Client, crdName: string, owner: FreezeOwner): Promise<void> {
  const { signal } = new AbortController();
  const name = policyName(crdName);
  const metadata = { name, labels: LABELS, annotations: { [OWNER]: JSON.stringify(owner) } };
  const apiVersion = "admissionregistration.k8s.io/v1";
  const policy = { apiVersion, kind: "ValidatingAdmissionPolicy", metadata, spec: policySpec(crdName) };
  const spec = { policyName: name, validationActions: ["Deny"] };
  const binding = { apiVersion, kind: "ValidatingAdmissionPolicyBinding", metadata, spec };
  const options = { fieldManager: CRD_FIELD_MANAGER, signal };
  await retry(client, () => client.apply(`${POLICIES}/${name}`, policy, options), { signal });
  await retry(client, () => client.apply(`${BINDINGS}/${name}`, binding, options), { signal });
}

/** What fails is repeated for so long, also after Ctrl-C. What stays behind then, the next run or the controller lifts. */
const UNFREEZE_MS = 120_000;

/**
 * Lifts the freeze of one run: removes its policy, then the annotations, by which the next run finds what is left of one
 * that dies in between. The freeze and the policy of another run or client are left alone.
 *
 * @param guard of that run, where it is known
 * @returns whether there was a freeze to lift
 */
export async function unfreeze(client: Client, crdName: string, identity: string, guard?: Guard): Promise<boolean> {
  const { signal } = new AbortController();
  const limits = { signal, forMs: UNFREEZE_MS };
  // Where it fails, the CRD is unfrozen all the same: a policy alone denies nothing.
  const isSeen = guard?.kind === "policy";
  const removal = await removePolicy(client, crdName, { identity, isSeen, signal }).catch((error: unknown) => ({
    error,
  }));
  for (let conflicts = 0; conflicts < MAX_CONFLICTS; conflicts++) {
    const crd = await retry(client, () => client.find<Crd>(`${CRDS}/${crdName}`, { signal }), limits);
    const { annotations = {} } = crd?.metadata ?? {};
    // Of a freeze that another client has lifted, the owner may be left: it would name a run that is over.
    const isOurs = crd !== undefined && parseOwner(annotations[OWNER])?.identity === identity;
    // The other client may have put on a freeze of its own since.
    const isForeign = crd !== undefined && freezerOf(crd.metadata) === "other";
    const lifted = { ...(isForeign ? {} : { [MIGRATING]: null }), [OWNER]: null };
    if (!isOurs || (await annotate(client, crd, lifted, signal, UNFREEZE_MS))) {
      if (removal !== undefined) throw removal.error;
      return isOurs && !isForeign && annotations[MIGRATING] !== undefined;
    }
    await client.clock.sleep(50 * (conflicts + client.random()), signal);
  }
  throw new KsvmError("CleanupFailed", `Cannot lift the freeze of "${crdName}": other clients kept writing the CRD`);
}

/**
 * Removes the policy and its binding.
 * @param identity leaves those of another run alone, which have the same names. @default whosever they are
 * @param isSeen whether the user has the right to read them: beside the webhook no run installs one, and needs none
 */
async function removePolicy(
  client: Client,
  crdName: string,
  {
    identity,
    isSeen = false,
    signal,
  }: { readonly identity?: string; readonly isSeen?: boolean; readonly signal: AbortSignal },
): Promise<void> {
  const name = policyName(crdName);
  const isOurs = (owner: FreezeOwner | undefined): boolean => identity === undefined || owner?.identity === identity;
  for (const path of [`${BINDINGS}/${name}`, `${POLICIES}/${name}`]) {
    const remove = async (): Promise<void> => {
      const find = client.find<KubeObject>(path, { signal });
      const found = await (isSeen ? find : unlessForbidden(find));
      const { annotations, resourceVersion, uid } = found?.metadata ?? {};
      if (found === undefined || !isOurs(parseOwner(annotations?.[OWNER]))) return;
      await client.delete(path, { signal, preconditions: { uid, resourceVersion } });
    };
    for (let conflicts = 0; ; conflicts++) {
      try {
        await retry(client, remove, { signal, forMs: UNFREEZE_MS });
        break;
      } catch (error) {
        // The API server writes the status of a policy, too.
        if (whose(error) !== "conflict" || conflicts === MAX_CONFLICTS) throw error;
      }
    }
  }
}

/** A Lease that is not renewed for so long, in milliseconds, has no live holder. */
const WATCH_LEASE_MS = 17_000;

/**
 * Lifts a freeze whose owner holds no live Lease: it was left by a run that died. Whether a run lives is judged by
 * watching its Lease, never by comparing clocks.
 *
 * @returns whether a freeze was lifted; `false` also for that of another client, and of a run that lives
 */
export async function unfreezeLeftBehind(client: Client, crd: Crd, signal: AbortSignal): Promise<boolean> {
  const owner = freezerOf(crd.metadata);
  if (owner === undefined || owner === "other") return false;
  const { name } = crd.metadata;
  if (await isHeld(client, owner, signal)) return false;
  return unfreeze(client, name, owner.identity);
}

/** Whether a run holds its Lease: it renews it while it is watched. */
export async function isHeld(client: Client, { identity, lease }: FreezeOwner, signal: AbortSignal): Promise<boolean> {
  const [namespace = "", name = ""] = lease.split("/");
  // The annotation says which Lease that is. Who may write it could name any, and keep the freeze in place.
  const path = `${LEASES}/${encodeURIComponent(namespace)}/leases/${encodeURIComponent(name)}`;
  const read = (): Promise<Lease | undefined> => retry(client, () => client.find<Lease>(path, { signal }), { signal });
  const found = await read();
  return found?.spec?.holderIdentity === identity && isRenewed(client, found, { read, forMs: WATCH_LEASE_MS, signal });
}

const POLL_MS = 1_000;
const SLOW_MS = 5_000;
const MAX_SLOW = 60;

/**
 * Watches a Lease, since no wall clock tells whether its holder lives.
 * @param found as it was read last
 * @param forMs milliseconds after which a Lease that was not renewed has no live holder
 * @returns `false` also where it has another holder by now, or none
 */
export async function isRenewed(
  { clock }: Client,
  found: Lease,
  {
    forMs,
    read,
    signal,
  }: { readonly read: () => Promise<Lease | undefined>; readonly forMs: number; readonly signal: AbortSignal },
): Promise<boolean> {
  let slow = 0;
  for (let leftMs = forMs; leftMs > 0; leftMs -= POLL_MS) {
    await clock.sleep(POLL_MS, signal);
    const asked = clock.monotonic();
    const now = await read();
    if (now?.spec?.holderIdentity !== found.spec?.holderIdentity) return false;
    if (now?.metadata.resourceVersion !== found.metadata.resourceVersion) return true;
    if (clock.monotonic() - asked <= SLOW_MS) continue;
    // While no API server answers in time, the holder cannot renew it either: the watch starts over.
    leftMs = forMs;
    if (++slow > MAX_SLOW) return true;
  }
  return false;
}
