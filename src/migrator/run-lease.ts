import { createHash } from "node:crypto";
import { DEFAULT_SETTLE_MS } from "../apiservers/settle.ts";
import { KsvmError } from "../errors.ts";
import { type FreezeOwner, isRenewed } from "../freeze/freeze.ts";
import type { Client } from "../kube/client.ts";
import { whose } from "../kube/errors.ts";
import { type Lease, LEASES, MERGE_PATCH } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import type { MigrateOptions } from "./types.ts";

export const DEFAULT_LEASE_NAMESPACE = "kube-system";
/** The annotation that holds the checkpoint of a run. */
export const CHECKPOINT = "ksvm.sigs.k8s.io/checkpoint";

const DURATION_S = 15;
const RENEW_MS = 5_000;
const RENEW_TIMEOUT_MS = 5_000;
/** Between two renewals where the first one failed. */
const AGAIN_MS = 1_000;

/**
 * Where a later run may go on: everything before the token is rewritten, and what lies beyond the watermark is in the
 * storage version. It holds for the same epoch and purpose.
 */
export interface Checkpoint {
  /** `uid/generation` of a CRD; hash and processes of a built-in resource. */
  readonly epoch: string;
  /** What the run was for, and what it waited for. @see checkpointPurpose */
  readonly purpose: string;
  readonly watermark: string;
  readonly continueToken?: string | undefined;
  /** Every object is rewritten: what is left comes after. */
  readonly isDone?: boolean;
}

/** What a rewrite knows of a checkpoint. */
export type Position = Omit<Checkpoint, "epoch" | "purpose">;

/**
 * A run resumes only what a run of the same purpose left, which waited for as long and asked the same API servers. One
 * that is forced resumes only its own work.
 */
export function checkpointPurpose(
  { endpoints = [], force = false, ignored = [], purpose = "migrate", settleMs = DEFAULT_SETTLE_MS }: MigrateOptions,
  identity: string,
): string {
  return JSON.stringify([purpose, settleMs, endpoints, ignored, ...(force ? [identity] : [])]);
}

/** Whether a run of this resource lives, or left something to resume: one that leaves nothing deletes its Lease. */
export async function hasRunLease(
  client: Client,
  { namespace, resource, signal }: Omit<LeaseOptions, "identity">,
): Promise<boolean> {
  const path = pathOf({ namespace, resource });
  return (await retry(client, () => client.find<Lease>(path, { signal }), { signal })) !== undefined;
}

interface LeaseOptions {
  readonly namespace: string;
  /** Of the resource, `plural.group`. */
  readonly resource: string;
  /** Unique to one run, such as the host name and a random part. */
  readonly identity: string;
  readonly signal: AbortSignal;
}

/** The name of the Lease of a run. A CRD's name may be as long as a Lease's. */
export function leaseName(resource: string): string {
  const name = `ksvm-migrate.${resource}`;
  return name.length <= 253 ? name : `ksvm-migrate.${createHash("sha256").update(resource).digest("hex")}`;
}

/**
 * The Lease of one run on one resource. It keeps a second run away, and carries the checkpoint. Safety does not rest on
 * it: what a run that lost it without noticing does is safe by itself, and ends once the next one has frozen the CRD.
 */
export class RunLease {
  /**
   * Aborted, with the error of the run, once another one holds the Lease. A run that reaches no API server goes on trying,
   * and finds that out when it does.
   */
  readonly lost: AbortSignal;
  readonly owner: FreezeOwner;
  readonly #client: Client;
  readonly #path: string;
  readonly #abort = new AbortController();
  readonly #released = new AbortController();
  #checkpoint: string;
  /** As it was last written or read. */
  #resourceVersion: string;
  #renewing: Promise<void> = Promise.resolve();

  private constructor(client: Client, options: LeaseOptions, lease: Lease) {
    this.#client = client;
    this.#path = pathOf(options);
    this.#checkpoint = lease.metadata.annotations?.[CHECKPOINT] ?? "";
    this.#resourceVersion = lease.metadata.resourceVersion;
    this.lost = this.#abort.signal;
    this.owner = {
      lease: `${options.namespace}/${leaseName(options.resource)}`,
      identity: options.identity,
      since: new Date(client.clock.now()).toISOString(),
    };
  }

  /**
   * Takes the Lease, once it was watched for as long as it lasts and nobody renewed it, and keeps renewing it.
   * @throws {KsvmError} AlreadyMigrating where its holder lives
   */
  static async take(client: Client, options: LeaseOptions): Promise<RunLease> {
    const { identity, namespace, resource, signal } = options;
    const path = pathOf(options);
    const read = (): Promise<Lease | undefined> =>
      retry(client, () => client.find<Lease>(path, { signal }), { signal });
    for (let found = await read(); ; found = await read()) {
      const holder = found?.spec?.holderIdentity;
      // Whatever a Lease says, no run waits for longer than a minute.
      const forMs = Math.min(found?.spec?.leaseDurationSeconds ?? DURATION_S, 60) * 1_000;
      // Our own identity: an attempt to take it arrived though its answer was lost.
      const other = holder && holder !== identity ? found : undefined;
      if (other !== undefined && (await isRenewed(client, other, { read, forMs, signal }))) {
        const text = `"${holder}" is migrating it (Lease "${namespace}/${leaseName(resource)}")`;
        throw new KsvmError("AlreadyMigrating", `Cannot migrate "${resource}": ${text}; wait for it to end`);
      }
      // Not broken off half way: a Lease that is created after the run has ended would stay.
      const lease = await takeOver(client, found, { ...options, signal: new AbortController().signal });
      if (lease === undefined) continue;
      const taken = new RunLease(client, options, lease);
      taken.#renewing = taken.#renew();
      if (signal.aborted) await taken.release();
      signal.throwIfAborted();
      return taken;
    }
  }

  /** Where an earlier run stood that rested on the same; `undefined` where it left nothing that can be read. */
  checkpointFor(epoch: string, purpose: string): Checkpoint | undefined {
    try {
      const found = JSON.parse(this.#checkpoint) as Partial<Checkpoint>;
      const isSame = found.epoch === epoch && found.purpose === purpose && typeof found.watermark === "string";
      return isSame ? (found as Checkpoint) : undefined;
    } catch {
      return undefined;
    }
  }

  /** Takes effect with the next renewal. */
  set checkpoint(checkpoint: Checkpoint | undefined) {
    this.#checkpoint = checkpoint === undefined ? "" : JSON.stringify(checkpoint);
  }

  /**
   * Gives the Lease up. It stays where it has a checkpoint for the next run. No run fails for it: it expires by itself.
   */
  async release(): Promise<void> {
    this.#released.abort();
    await this.#renewing;
    if (this.lost.aborted) return;
    const { signal } = new AbortController();
    const options = { signal, timeoutMs: RENEW_TIMEOUT_MS };
    const giveUp = async (): Promise<void> => {
      if (this.#checkpoint === "") {
        const preconditions = { resourceVersion: this.#resourceVersion };
        await this.#client.delete(this.#path, { ...options, preconditions });
      } else {
        await this.#write({ holderIdentity: null });
      }
    };
    try {
      await retry(this.#client, giveUp, { signal, forMs: 10_000 });
    } catch (error) {
      // A renewal may have arrived though its answer was lost.
      if (whose(error) !== "conflict" || !(await this.#isStillOurs(signal))) return;
      await giveUp().catch(() => undefined);
    }
  }

  async #renew(): Promise<void> {
    const { clock } = this.#client;
    for (let pauseMs = RENEW_MS; ; ) {
      await clock.sleep(pauseMs, this.#released.signal).catch(() => undefined);
      if (this.#released.signal.aborted) return;
      pauseMs = RENEW_MS;
      try {
        await this.#write({ renewTime: microTime(clock.now()) });
      } catch (error) {
        pauseMs = AGAIN_MS;
        const kind = whose(error);
        if ((kind !== "conflict" && kind !== "gone") || (await this.#isStillOurs(this.#released.signal))) continue;
        const text = `Lease "${this.owner.lease}" is lost: another run took it over, or it was deleted`;
        this.#abort.abort(new KsvmError("OwnershipLost", `Cannot continue: ${text}`));
        return;
      }
    }
  }

  /** After a conflict: an earlier write may have arrived though its answer was lost, or a user labelled the Lease. */
  async #isStillOurs(signal: AbortSignal): Promise<boolean> {
    const found = await this.#client
      .find<Lease>(this.#path, { signal, timeoutMs: RENEW_TIMEOUT_MS })
      .catch(() => "unknown" as const);
    if (found === "unknown") return true;
    if (found?.spec?.holderIdentity !== this.owner.identity) return false;
    this.#resourceVersion = found.metadata.resourceVersion;
    return true;
  }

  async #write(spec: object): Promise<void> {
    const annotations = { [CHECKPOINT]: this.#checkpoint };
    const body = { metadata: { resourceVersion: this.#resourceVersion, annotations }, spec };
    const { signal } = new AbortController();
    const options = { signal, timeoutMs: RENEW_TIMEOUT_MS };
    const { metadata } = await this.#client.patch<Lease>(this.#path, body, options, MERGE_PATCH);
    this.#resourceVersion = metadata.resourceVersion;
  }
}

function pathOf({ namespace, resource }: Pick<LeaseOptions, "namespace" | "resource">): string {
  return `${LEASES}/${namespace}/leases/${leaseName(resource)}`;
}

/** @returns `undefined` where another client was quicker */
async function takeOver(
  client: Client,
  found: Lease | undefined,
  { identity, namespace, resource, signal }: LeaseOptions,
): Promise<Lease | undefined> {
  const now = microTime(client.clock.now());
  const spec = {
    holderIdentity: identity,
    leaseDurationSeconds: DURATION_S,
    acquireTime: now,
    renewTime: now,
    leaseTransitions: found === undefined ? 0 : (found.spec?.leaseTransitions ?? 0) + 1,
  };
  const labels = { "app.kubernetes.io/managed-by": "ksvm" };
  const metadata = { name: leaseName(resource), namespace, labels };
  const body = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec };
  const path = `${LEASES}/${namespace}/leases`;
  const { resourceVersion, uid } = found?.metadata ?? {};
  const write = (): Promise<Lease> =>
    found === undefined
      ? client.create<Lease>(path, body, { signal })
      : client.patch<Lease>(`${path}/${metadata.name}`, { metadata: { uid, resourceVersion }, spec }, { signal });
  try {
    return await retry(client, write, { signal });
  } catch (error) {
    const kind = whose(error);
    if (kind === "conflict" || (kind === "gone" && found !== undefined)) return undefined;
    if (kind !== "gone") throw error;
    const text = `Cannot create Lease "${namespace}/${metadata.name}": namespace "${namespace}" does not exist`;
    throw new KsvmError("NotFound", `${text}; create it, or name another one`);
  }
}

/** `metav1.MicroTime` has six digits. */
function microTime(ms: number): string {
  return new Date(ms).toISOString().replace("Z", "000Z");
}
