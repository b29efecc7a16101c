import { Readable, Writable } from "node:stream";
import type { Test } from "tap";
import type { CustomResourceDefinition } from "../crd.ts";
import { runProgram } from "../../src/cli/program.ts";
import { systemClock } from "../../src/clock.ts";
import { KsvmError } from "../../src/errors.ts";
import { Client } from "../../src/kube/client.ts";
import { loadKubeconfig } from "../../src/kube/kubeconfig.ts";
import { senderFor } from "../../src/kube/undici-send.ts";
import { ApiClient, CRDS, MERGE_PATCH, type NewObject, type Resource } from "../api-client.ts";
import { type ControlPlane, startControlPlane } from "../control-plane/control-plane.ts";
import type { ControlPlaneOptions } from "../control-plane/options.ts";
import { attachShared } from "../control-plane/shared.ts";
import { type ProgramEnd, type RunningProgram, startKsvm } from "../processes/program.ts";
import { type CrdShape, GROUP, type TestKind, versionsOf } from "./crd-fixture.ts";

/** A real control plane with what the integration tests do to it. Ends with the test. */
export class Cluster {
  readonly controlPlane: ControlPlane;
  readonly kubeconfig: string;
  readonly api: ApiClient;
  readonly #closers: (() => Promise<void>)[] = [];

  constructor(controlPlane: ControlPlane) {
    this.controlPlane = controlPlane;
    this.kubeconfig = controlPlane.kubeconfigFor();
    this.api = this.clientFor("admin");
  }

  /**
   * @param own the options of a control plane that no other file gets, which the test may stop and pause. @default one that
   * files share, with nothing in it
   */
  static async start(t: Pick<Test, "teardown">, own?: ControlPlaneOptions): Promise<Cluster> {
    const cluster = new Cluster(await (own === undefined ? attachShared() : startControlPlane(own)));
    t.teardown(async () => {
      await cluster.close();
      await cluster.controlPlane.stop();
    });
    return cluster;
  }

  /** Ends the connections of its clients. */
  async close(): Promise<void> {
    await Promise.all(this.#closers.map((close) => close()));
  }

  clientFor(user: string): ApiClient {
    return this.clientBy(this.controlPlane.kubeconfigFor(user));
  }

  clientBy(kubeconfig: string): ApiClient {
    const access = loadKubeconfig({ kubeconfig, variables: {} });
    const { close, send } = senderFor(access, systemClock);
    this.#closers.push(close);
    const client = new Client({ address: access.server, send, clock: systemClock, random: Math.random });
    return new ApiClient(client);
  }

  /** Runs ksvm in this process, as the admin; `signal` stands for Ctrl-C, `input` is what it reads on stdin. */
  async ksvm(
    args: readonly string[],
    options: { signal?: AbortSignal; onStdout?: (text: string) => void; input?: string } = {},
  ) {
    let stdout = "";
    let stderr = "";
    const code = await runProgram(
      [...args, ...(args.includes("--kubeconfig") ? [] : ["--kubeconfig", this.kubeconfig])],
      {
        stdout: collect((text) => {
          stdout += text;
          options.onStdout?.(text);
        }),
        stderr: collect((text) => {
          stderr += text;
        }),
        ...(options.input === undefined ? {} : { stdin: Readable.from([options.input]) }),
        signal: options.signal ?? new AbortController().signal,
      },
    );
    return { code, stdout, stderr } satisfies ProgramEnd;
  }

  /** Migrates with a settle time that fits a test in which nothing is under way when the storage version changes. */
  migrate(args: readonly string[], options: { signal?: AbortSignal; onStdout?: (text: string) => void } = {}) {
    return this.ksvm(["migrate", "--unsafe-settle", "50ms", ...args], options);
  }

  /** Starts ksvm as a process of its own, as a user does. It ends with the test. */
  spawnKsvm(t: Test, args: readonly string[]): RunningProgram {
    return startKsvm(t, [...args, ...(args.includes("--kubeconfig") ? [] : ["--kubeconfig", this.kubeconfig])]);
  }

  /** Creates a CRD and waits until its objects can be written in every served version. */
  async createCrd(kind: TestKind, shape: CrdShape): Promise<CustomResourceDefinition> {
    const manifest = kind.manifest(shape);
    await this.api.create(CRDS, manifest);
    for (const { name, served } of manifest.spec.versions) {
      await this.waitForVersion(kind, name, served);
    }
    // It is served a moment before its conditions say so.
    const isEstablished = async (): Promise<boolean> =>
      (await this.crd(kind)).status?.conditions?.some(
        ({ status, type }) => type === "Established" && status === "True",
      ) === true;
    await eventually(isEstablished, `${kind.name} is established`);
    return this.crd(kind);
  }

  /**
   * Creates a CRD, objects stored as v1alpha1, and makes v1 the storage version: the state that every migration starts
   * from.
   */
  async createStale(kind: TestKind, count: number, shape: Partial<CrdShape> = {}): Promise<void> {
    await this.createCrd(kind, { ...shape, storage: "v1alpha1" });
    await this.createObjects(kind.resource("v1alpha1"), kind.objects(count, "v1alpha1"));
    await this.setVersions(kind, { ...shape, storage: "v1" });
  }

  async waitForVersion({ plural }: TestKind, version: string, served = true): Promise<void> {
    await eventually(
      async () => {
        // One that hangs, as while a busy API server fills the watch cache of a new CRD, is sent again.
        const path = `/apis/${GROUP}/${version}/${plural}?limit=1`;
        const answer = await this.controlPlane.request(path, { timeoutMs: 10_000 }).catch(() => undefined);
        return answer?.status === (served ? 200 : 404);
      },
      `${version} of ${plural} is ${served ? "" : "not "}served`,
    );
  }

  crd({ name }: Pick<TestKind, "name">): Promise<CustomResourceDefinition> {
    return this.api.get<CustomResourceDefinition>(CRDS, { name });
  }

  /** Replaces `spec.versions`. */
  async setVersions({ name }: Pick<TestKind, "name">, shape: CrdShape): Promise<CustomResourceDefinition> {
    const body = { spec: { versions: versionsOf(shape) } };
    return this.api.patch<CustomResourceDefinition>(CRDS, { name }, { type: MERGE_PATCH, body });
  }

  /** How many objects etcd holds in each version. */
  async storedAs({ plural }: TestKind): Promise<Record<string, number>> {
    const counts = await this.controlPlane.stored.countByVersion(GROUP, plural);
    return Object.fromEntries(Object.entries(counts).map(([version, n]) => [version.slice(GROUP.length + 1), n]));
  }

  /** Creates objects, sixteen at a time. */
  async createObjects(resource: Resource, objects: readonly NewObject[]): Promise<void> {
    const queue = objects.values();
    const worker = async (): Promise<void> => {
      for (const object of queue) {
        await this.api.create(resource, object);
      }
    };
    await Promise.all(Array.from({ length: 16 }, worker));
  }
}

/**
 * A wait is no measurement: what a quiet machine does within seconds may take a busy one minutes. So a wait tells no quick way,
 * as a watch, from a slow one, as a look once a minute: a test of the quick one has to keep the slow one out. It is shorter than the
 * interval of the trigger, 240 s, and that of the webhook's objects, 300 s. In milliseconds.
 */
const SHORTEST_WAIT_MS = 200_000;

/**
 * Waits until `condition` holds.
 * @param timeoutMs at least {@link SHORTEST_WAIT_MS}: what is less counts as that
 * @throws {KsvmError} after `timeoutMs`.
 */
export async function eventually(
  condition: () => Promise<boolean>,
  what: string,
  // Generous: it is only used up where something is wrong, or the machine is busy with others.
  timeoutMs = SHORTEST_WAIT_MS,
  pauseMs = 50,
): Promise<void> {
  const limitMs = Math.max(timeoutMs, SHORTEST_WAIT_MS);
  const startedAt = performance.now();
  const deadline = startedAt + limitMs;
  for (let askedAt = performance.now(); !(await condition()); askedAt = performance.now()) {
    const now = performance.now();
    if (now > deadline) {
      throw new KsvmError("Internal", `Cannot see after ${limitMs} ms that ${what}`);
    }
    // Looks that take their time, such as those into etcd, would slow down what is waited for, and so do many of them.
    const slower = Math.min((now - startedAt) / 20, 5 * pauseMs);
    const pause = Math.max(pauseMs, slower, 2 * (now - askedAt));
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

function collect(onText: (text: string) => void): Writable {
  return new Writable({
    write(chunk: Buffer, _encoding, done) {
      onText(chunk.toString());
      done();
    },
  });
}
