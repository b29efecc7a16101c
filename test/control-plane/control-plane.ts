import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Agent, request } from "undici";

import { type ApiserverOptions, apiserverCommand, type Command } from "./apiserver.ts";
import { ensureBinaries } from "./binaries.ts";
import { EtcdReader } from "./etcd-reader.ts";
import { etcdArgs, featureGateArgs, filesIn } from "./flags.ts";
import { kubeconfigText, type User } from "./kubeconfig.ts";
import { IS_SHARED, ManagedProcess, type ManagedProcessSpec, startOnFreePorts } from "./managed-process.ts";
import type { ControllerManagerOptions, ControlPlaneOptions, RequestOptions } from "./options.ts";
import { CONTROLLER_MANAGER, prepareFiles } from "./prepare-files.ts";
import { startWatchdog, type Watchdog } from "../processes/watchdog.ts";

export type { ApiserverOptions } from "./apiserver.ts";
export type { ManagedProcess } from "./managed-process.ts";
export type { ControllerManagerOptions, ControlPlaneOptions, RequestOptions } from "./options.ts";

/**
 * Starts etcd and apiservers on 127.0.0.1 and waits until they serve. They end with this process, however it ends.
 * @throws {Error} with the end of a log when one of them does not start
 */
export async function startControlPlane(options: ControlPlaneOptions = {}): Promise<ControlPlane> {
  const binaries = await ensureBinaries(["etcd", "kube-apiserver"]);
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), "ksvm-control-plane-"));
  mkdirSync(dir, { recursive: true });
  const { ca, users } = await prepareFiles(dir, options.users ?? []);
  const controlPlane = new ControlPlane({ dir, options, ca, users, binaries });
  try {
    await controlPlane.start();
  } catch (error) {
    await controlPlane.stop();
    throw error;
  }
  return controlPlane;
}

/** What a test file needs to know of a control plane that another process started. */
export interface Attachment {
  readonly dir: string;
  readonly ca: string;
  readonly users: readonly User[];
  readonly apiservers: readonly string[];
  readonly etcd: string;
}

interface Setup {
  readonly dir: string;
  readonly options: ControlPlaneOptions;
  readonly ca: string;
  readonly users: readonly User[];
  /** `undefined` where another process runs them. */
  readonly binaries: Record<"etcd" | "kube-apiserver", string> | undefined;
}

/** A running control plane; made by startControlPlane. */
export class ControlPlane {
  readonly dir: string;
  /** The PEM text of the CA that signed the apiservers' serving certificate. */
  readonly ca: string;
  readonly apiservers: ManagedProcess[] = [];
  controllerManager: ManagedProcess | undefined;
  #etcd: ManagedProcess | undefined;
  #setup: Setup;
  #users: Map<string, User>;
  #agent: Agent;
  #watchdog: Watchdog;
  #nextIndex = 0;

  constructor(setup: Setup) {
    this.#setup = setup;
    this.dir = setup.dir;
    this.ca = setup.ca;
    this.#users = new Map(setup.users.map((user) => [user.name, user]));
    this.#agent = new Agent({ connect: { ca: setup.ca } });
    this.#watchdog = startWatchdog(setup.options.dir === undefined ? setup.dir : undefined);
  }

  /** Attaches to a control plane that another process started, and ends: its programs can be asked and not stopped. */
  static attach(attachment: Attachment): ControlPlane {
    const { dir, ca, users, apiservers, etcd } = attachment;
    const controlPlane = new ControlPlane({ dir, options: { dir }, ca, users, binaries: undefined });
    const attached = (name: string, url: string): ManagedProcess =>
      new ManagedProcess({
        name,
        url,
        logFile: join(dir, `${name}.log`),
        isReady: async () => true,
        onChange: () => undefined,
      });
    controlPlane.#etcd = attached("etcd", etcd);
    controlPlane.apiservers.push(...apiservers.map((url, index) => attached(`kube-apiserver-${index}`, url)));
    return controlPlane;
  }

  /** What another process needs to attach. */
  attachment(): Attachment {
    const apiservers = this.apiservers.map(({ url }) => url);
    return { dir: this.dir, ca: this.ca, users: [...this.#users.values()], apiservers, etcd: this.etcd.url };
  }

  get etcd(): ManagedProcess {
    if (this.#etcd === undefined) throw new Error("Cannot use etcd: it was not started");
    return this.#etcd;
  }

  /** Reads what is stored, past the apiservers. */
  get stored(): EtcdReader {
    return new EtcdReader(this.etcd.url);
  }

  /** Every process that was started, also those that ended since. */
  get processes(): ManagedProcess[] {
    return [...this.apiservers, this.controllerManager, this.#etcd].filter((process) => process !== undefined);
  }

  /** Starts etcd and the apiservers; startControlPlane calls it. */
  async start(): Promise<void> {
    const { options, dir } = this.#setup;
    const { etcd: command } = this.#binaries;
    await startOnFreePorts(2, ([client = 0, peer = 0]) => {
      const url = `http://127.0.0.1:${client}`;
      const args = [...etcdArgs(dir, client, peer), ...(options.etcdArgs ?? [])];
      const isReady = (): Promise<boolean> => isOk(`${url}/health`);
      return (this.#etcd = this.#makeProcess({ name: "etcd", command, args, url, isReady }));
    });
    const [first, ...others] = Array.from({ length: options.apiservers ?? 1 }, (_, i) => options.overrides?.[i] ?? {});
    // The first one alone creates the bootstrap objects; together they would only get in each other's way.
    if (first !== undefined) await this.addApiserver(first);
    await Promise.all(others.map((override) => this.addApiserver(override)));
  }

  /**
   * Starts one more apiserver on the same etcd and waits until it serves.
   * @param override what differs from the options of the control plane
   */
  async addApiserver(override: ApiserverOptions = {}): Promise<ManagedProcess> {
    // Taken before anything is awaited: apiservers may be added side by side.
    const index = this.#nextIndex++;
    const name = `kube-apiserver-${index}`;
    return await startOnFreePorts(1, ([port = 0]) => {
      const url = `https://127.0.0.1:${port}`;
      const { command, args } = this.#apiserverCommand(index, port, override);
      const isReady = (): Promise<boolean> => this.#isApiserverReady(index);
      return (this.apiservers[index] = this.#makeProcess({ name, command, args, url, isReady }));
    });
  }

  /**
   * Kills the apiserver at the index and starts it again on the same port with other options, as an upgrade does.
   * @param override what differs from the options of the control plane; the former override is forgotten
   */
  async restartApiserver(index: number, override: ApiserverOptions = {}): Promise<void> {
    const apiserver = this.#apiserver(index);
    const port = Number(new URL(apiserver.url).port);
    await apiserver.restart(this.#apiserverCommand(index, port, override));
  }

  /** Starts a kube-controller-manager on the first apiserver and waits until it serves. */
  async startControllerManager(options: ControllerManagerOptions = {}): Promise<ManagedProcess> {
    const { "kube-controller-manager": command } = await ensureBinaries(["kube-controller-manager"]);
    return await startOnFreePorts(1, ([port = 0]) => {
      const url = `https://127.0.0.1:${port}`;
      const args = [
        `--kubeconfig=${this.kubeconfigFor(CONTROLLER_MANAGER)}`,
        "--bind-address=127.0.0.1",
        `--secure-port=${port}`,
        `--tls-cert-file=${filesIn(this.dir).certificate}`,
        `--tls-private-key-file=${filesIn(this.dir).privateKey}`,
        "--leader-elect=false",
        ...(options.controllers ? [`--controllers=${options.controllers.join(",")}`] : []),
        ...featureGateArgs(options.featureGates),
        ...(options.extraArgs ?? []),
      ];
      const isReady = (): Promise<boolean> => isOk(`${url}/healthz`, { dispatcher: this.#agent });
      const name = "kube-controller-manager";
      return (this.controllerManager = this.#makeProcess({ name, command, args, url, isReady }));
    });
  }

  /**
   * The path of a kubeconfig for a user, by default the one who may do everything.
   * @throws {Error} when the user was not named in the options
   */
  kubeconfigFor(user = "admin", apiserverIndex = 0): string {
    const path = join(this.dir, `${user.replaceAll(/[^\w.-]/g, "-")}-${apiserverIndex}.kubeconfig`);
    writeFileSync(path, this.kubeconfigTextFor(user, apiserverIndex), { mode: 0o600 });
    return path;
  }

  /**
   * The text of a kubeconfig for a user.
   * @throws {Error} when the user was not named in the options
   */
  kubeconfigTextFor(user = "admin", apiserverIndex = 0): string {
    return kubeconfigText(this.#apiserver(apiserverIndex).url, this.ca, this.#user(user));
  }

  /**
   * Sends one request straight to an apiserver, whatever the status of its answer.
   * @returns the status and the parsed body; a body that is not JSON comes as a string
   */
  async request(path: string, options: RequestOptions = {}): Promise<{ status: number; body: unknown }> {
    const method = options.method ?? "GET";
    const json = method === "PATCH" ? "application/merge-patch+json" : "application/json";
    const answer = await request(`${this.#apiserver(options.apiserver ?? 0).url}${path}`, {
      method,
      dispatcher: this.#agent,
      headers: {
        authorization: `Bearer ${this.#user(options.user ?? "admin").token}`,
        ...(options.body === undefined ? {} : { "content-type": options.contentType ?? json }),
      },
      body: options.body === undefined ? null : JSON.stringify(options.body),
      signal: AbortSignal.timeout(options.timeoutMs ?? 30_000),
    });
    const text = await answer.body.text();
    const isJson = String(answer.headers["content-type"]).startsWith("application/json");
    return { status: answer.statusCode, body: isJson ? JSON.parse(text) : text };
  }

  /**
   * Ends everything, paused or not: first the clients of etcd, then etcd. Does nothing the second time.
   * @param gracefulMs how many milliseconds each may take after SIGTERM before it is killed; 0 by default, as nothing
   * that a test leaves behind is worth the wait
   */
  async stop(gracefulMs = 0): Promise<void> {
    const end = (process: ManagedProcess): Promise<unknown> =>
      gracefulMs > 0 ? process.stop(gracefulMs) : process.kill();
    const own = this.processes.filter((process) => !process.isShared);
    await Promise.all(own.filter((process) => process !== this.#etcd).map(end));
    if (this.#etcd?.isShared === false) await end(this.#etcd);
    this.#watchdog.disarm();
    await this.#agent.destroy();
    if (this.#setup.options.dir === undefined) rmSync(this.dir, { recursive: true, force: true });
  }

  /** Lets everything run on when this process ends. */
  detach(): void {
    this.#watchdog.disarm();
  }

  get #binaries(): Record<"etcd" | "kube-apiserver", string> {
    const { binaries } = this.#setup;
    if (binaries === undefined) throw new Error(IS_SHARED);
    return binaries;
  }

  #makeProcess(spec: Omit<ManagedProcessSpec, "logFile" | "onChange">): ManagedProcess {
    const onChange = (): void => this.#watchdog.watch(this.processes.flatMap((process) => process.pid ?? []));
    return new ManagedProcess({ ...spec, logFile: join(this.dir, `${spec.name}.log`), onChange });
  }

  #apiserverCommand(index: number, port: number, override: ApiserverOptions): Command {
    const { dir, options } = this.#setup;
    const place = { dir, index, port, etcdUrl: this.etcd.url };
    return apiserverCommand(this.#binaries["kube-apiserver"], place, { ...options, ...override });
  }

  async #isApiserverReady(index: number): Promise<boolean> {
    // Ready comes a moment before the namespace that most tests use is there.
    for (const path of ["/readyz", "/api/v1/namespaces/default"]) {
      const { status } = await this.request(path, { apiserver: index, timeoutMs: 2000 });
      if (status !== 200) return false;
    }
    return true;
  }

  #apiserver(index: number): ManagedProcess {
    const apiserver = this.apiservers[index];
    if (apiserver === undefined) throw new Error(`Cannot use apiserver ${index}: there are ${this.apiservers.length}`);
    return apiserver;
  }

  #user(name: string): User {
    const user = this.#users.get(name);
    if (user === undefined)
      throw new Error(`Cannot act as "${name}": name the user in the options of the control plane`);
    return user;
  }
}

async function isOk(url: string, options: { dispatcher?: Agent } = {}): Promise<boolean> {
  const { statusCode, body } = await request(url, { ...options, signal: AbortSignal.timeout(2000) });
  await body.dump();
  return statusCode === 200;
}
