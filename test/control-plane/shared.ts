import { type Attachment, ControlPlane, startControlPlane } from "./control-plane.ts";

/** Every shared control plane knows these users, who may do nothing until a test lets them; the last one may do everything. */
const USERS = [
  ...["reader", "helper", "viewer", "narrow", "seeing", "editor", "certs"].map((name) => ({ name })),
  { name: "other-migrator", groups: ["system:masters"] },
];

/** A test file asks the runner for a control plane by this message, and gets an {@link Attachment}. */
export const SHARED_REQUEST = "a shared control plane";

/** The answer: `error` where the control plane did not start. */
export type SharedAnswer = { readonly attachment: Attachment } | { readonly error: string };

let lastRequest: Promise<unknown> = Promise.resolve();

/**
 * Attaches to a control plane that the runner keeps, and that no other file uses until this process ends. A file that is
 * run by itself gets one of its own.
 */
export async function attachShared(): Promise<ControlPlane> {
  if (process.send === undefined) return startControlPlane({ users: USERS });
  // One after the other, as an answer does not say which request it is for.
  const answered = lastRequest.then(requestShared);
  lastRequest = answered;
  const answer = await answered;
  if ("error" in answer) throw new Error(answer.error);
  return ControlPlane.attach(answer.attachment);
}

function requestShared(): Promise<SharedAnswer> {
  return new Promise((resolve) => {
    // tap has nothing wait for the channel: a process that waits for this answer alone would end.
    process.channel?.ref();
    process.once("message", (message) => {
      process.channel?.unref();
      resolve(message as SharedAnswer);
    });
    process.send?.(SHARED_REQUEST);
  });
}

interface Kept {
  readonly controlPlane: ControlPlane;
  /** The revision of etcd when it was new: what was created later is removed before the next file gets it. */
  readonly newAt: number;
}

/** The shared control planes of one run of the tests. */
export class SharedControlPlanes {
  readonly #idle: Kept[] = [];
  readonly #all: Promise<Kept>[] = [];

  /** How many were started. */
  get started(): number {
    return this.#all.length;
  }

  /** @returns one that nobody uses, with nothing in it, and the function that gives it back */
  async take(): Promise<{ readonly attachment: Attachment; readonly release: () => void }> {
    const kept = this.#idle.shift();
    const taken = kept !== undefined && (await isReset(kept)) ? kept : await this.#start();
    return { attachment: taken.controlPlane.attachment(), release: () => this.#idle.push(taken) };
  }

  #start(): Promise<Kept> {
    const starting = start();
    this.#all.push(starting);
    return starting;
  }

  /** Ends all of them. */
  async stop(): Promise<void> {
    const all = await Promise.allSettled(this.#all);
    const started = all.flatMap((one) => (one.status === "fulfilled" ? [one.value.controlPlane] : []));
    await Promise.all(started.map((controlPlane) => controlPlane.stop()));
  }
}

async function start(): Promise<Kept> {
  const controlPlane = await startControlPlane({ users: USERS });
  return { controlPlane, newAt: await controlPlane.stored.currentRevision() };
}

/** What API servers write for themselves, and keep. An identity Lease is named by a hash of 26 characters. */
const OWN = [
  /^\/registry\/configmaps\/kube-system\//,
  /^\/registry\/(ipaddresses|masterleases|peerserverleases|ranges|servicecidrs)\//,
  /^\/registry\/leases\/kube-system\/apiserver-[a-z2-7]{26}$/,
  /^\/registry\/services\/(specs|endpoints)\/default\/kubernetes$/,
];

const CRDS = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/**
 * Removes from etcd what was created since the control plane was new. API servers see that as deletions, and nothing has to
 * wait for finalizers, or for a namespace that no controller would empty.
 */
async function reset({ controlPlane, newAt }: Kept): Promise<void> {
  const { stored } = controlPlane;
  const deadline = performance.now() + 120_000;
  for (;;) {
    const entries = await stored.readPrefix("/registry/", { keysOnly: true });
    const left = entries.filter(
      ({ createRevision, key }) => createRevision > newAt && !OWN.some((own) => own.test(key)),
    );
    // The objects first: nothing reads them once their CRD has gone.
    const keys = left.map(({ key }) => key).toSorted((a, b) => Number(a.startsWith(CRDS)) - Number(b.startsWith(CRDS)));
    await stored.deleteKeys(keys);
    if (keys.length === 0 && (await areGone(controlPlane))) return;
    if (performance.now() > deadline) throw new Error(`it still shows what was deleted, such as ${keys[0]}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** One that cannot be emptied is ended: the next file, which did nothing wrong, gets another one. */
async function isReset(kept: Kept): Promise<boolean> {
  try {
    await reset(kept);
    return true;
  } catch (error) {
    console.log(`Cannot empty a control plane: ${error instanceof Error ? error.message : String(error)}`);
    await kept.controlPlane.stop();
    return false;
  }
}

const WATCHED = [
  "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
  "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
  "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
  "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
];

/** Whether the watch cache of every API server has seen the deletions. */
async function areGone(controlPlane: ControlPlane): Promise<boolean> {
  for (const apiserver of controlPlane.apiservers.keys()) {
    for (const path of WATCHED) {
      const { status, body } = await controlPlane.request(`${path}?resourceVersion=0`, { apiserver });
      if (status !== 200 || (body as { items: unknown[] }).items.length > 0) return false;
    }
    // Discovery follows a moment later, and so do the handlers of custom resources.
    const { body } = await controlPlane.request("/apis", { apiserver });
    const groups = (body as { groups: { name: string }[] }).groups.map(({ name }) => name);
    if (groups.some((name) => name.includes("example") || name.startsWith("migration."))) return false;
  }
  return true;
}
