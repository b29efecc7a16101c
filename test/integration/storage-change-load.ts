import type { Test } from "tap";
import { FREEZE_REASON, MIGRATING, WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { MERGE_PATCH, CRDS } from "../api-client.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { type Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";

const DENIAL = `admission webhook "${WEBHOOK_NAME}" denied the request: ${FREEZE_REASON}:`;

/** What came back for the storage changes that were sent. */
export interface LoadReport {
  readonly sent: number;
  /** Denied by the webhook itself, in its own words. */
  readonly denied: number;
  /** What a busy machine did not get answered within the second that an API server waits. */
  readonly late: number;
  /** Every other answer. */
  readonly others: readonly string[];
  readonly slowestMs: number;
}

/** JSON patch: the request stays small however large the CRD is. */
const FLIP = [
  { op: "replace", path: "/spec/versions/0/storage", value: true },
  { op: "replace", path: "/spec/versions/1/storage", value: false },
];

/** A schema that adds `kib` KiB to a CRD with two versions, by its descriptions; any further field is kept. */
export function largeSchema(kib: number): object {
  const text = "What this field is for, at length. ".repeat(75);
  const count = Math.floor((kib * 1_024) / (2 * text.length));
  const properties = Object.fromEntries(
    Array.from({ length: count }, (_, index) => [`field${index}`, { type: "string", description: text }]),
  );
  return { type: "object", properties, "x-kubernetes-preserve-unknown-fields": true };
}

/** A frozen CRD with two versions, the second one stored, and about `kib` KiB of schema. */
export async function createFrozen({ api }: Cluster, word: string, kib = 0): Promise<TestKind> {
  const kind = new TestKind(word);
  await api.create(CRDS, kind.manifest({ storage: "v1", specSchema: largeSchema(kib) }));
  await api.patch(CRDS, kind, {
    type: MERGE_PATCH,
    body: { metadata: { annotations: { [MIGRATING]: "true" } } },
  });
  return kind;
}

/** Sends one storage change of a CRD. */
function sendStorageChange(controlPlane: ControlPlane, { name }: Pick<TestKind, "name">, query = "") {
  const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}${query}`;
  return controlPlane.request(path, {
    method: "PATCH",
    contentType: "application/json-patch+json",
    body: FLIP,
    timeoutMs: 60_000,
  });
}

/** Waits until the webhook is in force. A dry-run changes nothing where it is not yet. */
export async function untilDenied({ controlPlane }: Cluster, kind: Pick<TestKind, "name">): Promise<void> {
  const isDenied = async (): Promise<boolean> =>
    (await sendStorageChange(controlPlane, kind, "?dryRun=All")).status === 403;
  await eventually(isDenied, `a storage change of ${kind.name} is denied`);
}

/** So many are under way at most: a machine that is busy with something else is not to be buried. */
const MAX_PENDING = 40;

/** Storage changes on frozen CRDs at a steady rate. */
export class StorageChangeLoad {
  readonly #controlPlane: ControlPlane;
  readonly #kinds: readonly TestKind[];
  readonly #timer: NodeJS.Timeout;
  readonly #answers: Promise<void>[] = [];
  readonly #others: string[] = [];
  #denied = 0;
  #late = 0;
  #pending = 0;
  #slowestMs = 0;

  private constructor(controlPlane: ControlPlane, kinds: readonly TestKind[], perSecond: number) {
    this.#controlPlane = controlPlane;
    this.#kinds = kinds;
    this.#timer = setInterval(() => {
      if (this.#pending < MAX_PENDING) this.#answers.push(this.#send());
    }, 1_000 / perSecond);
  }

  /** Sends to each of the kinds in turn until it is stopped, at the latest with the test. */
  static start(t: Test, cluster: Cluster, kinds: readonly TestKind[], perSecond: number): StorageChangeLoad {
    const load = new StorageChangeLoad(cluster.controlPlane, kinds, perSecond);
    t.teardown(() => load.stop());
    return load;
  }

  /** Answers so far that were no denial of the webhook. */
  get others(): readonly string[] {
    return this.#others;
  }

  /** Stops once everything that was sent is answered. */
  async stop(): Promise<LoadReport> {
    clearInterval(this.#timer);
    await Promise.all(this.#answers);
    return {
      sent: this.#answers.length,
      denied: this.#denied,
      late: this.#late,
      others: this.#others,
      slowestMs: this.#slowestMs,
    };
  }

  async #send(): Promise<void> {
    const kind = this.#kinds[this.#answers.length % this.#kinds.length];
    if (kind === undefined) throw new Error("Cannot send a storage change: no CRD was named");
    const startedAt = performance.now();
    this.#pending++;
    const { status, body } = await sendStorageChange(this.#controlPlane, kind).catch((error: unknown) => ({
      status: 599,
      body: { message: String(error) },
    }));
    this.#pending--;
    this.#slowestMs = Math.max(this.#slowestMs, performance.now() - startedAt);
    const { message = "" } = body as { message?: string };
    if (status === 403 && message.startsWith(DENIAL)) {
      this.#denied++;
    } else if (status >= 500 && message.includes("context deadline exceeded")) {
      this.#late++;
    } else {
      this.#others.push(`${status} ${message.slice(0, 300)}`);
    }
  }
}

/** For a summary on standard error: standard output belongs to TAP. */
export function describeLoad({ sent, denied, late, others, slowestMs }: LoadReport): string {
  const counts = `${denied} ${FREEZE_REASON}, ${late} late, ${others.length} others`;
  return `${sent} storage changes sent, ${counts}, slowest ${Math.round(slowestMs)} ms`;
}
