import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parse } from "yaml";
import { systemClock } from "../../src/clock.ts";
import { connect } from "../../src/kube/connect.ts";
import { ApiClient } from "../api-client.ts";
import { bundle } from "../../tools/build.ts";
import { freePorts } from "../control-plane/ports.ts";
import { applyAll, NAMESPACE } from "../integration/installation.ts";
import { render } from "../integration/kubectl.ts";
import { KSVM, RunningProgram } from "../processes/program.ts";

/** What ksvm acts as: audit logs name it, and has no rights but those of deploy/. */
export const SERVICE_ACCOUNT = "storage-migrator";

/** The token outlives every suite. In seconds. */
const TOKEN_SECONDS = 7_200;
const READY_MS = 120_000;
const POLL_MS = 200;

/** Where and how `ksvm controller` is to run. */
export interface InstallOptions {
  /** Of a user who may do everything: what applies the manifests. */
  readonly kubeconfig: string;
  /** What to apply, relative to the project. */
  readonly manifests: string;
  /** Beyond those that a process on loopback needs. */
  readonly flags: readonly string[];
  /** A folder for the kubeconfig of the service account. */
  readonly dir: string;
  /** Where the log goes: a file descriptor. */
  readonly log: number;
}

/**
 * Applies the manifests and starts `ksvm controller` as a process, with the token of its service account, since nothing
 * runs pods here.
 * @returns once it is ready
 * @throws {Error} where it is not ready after two minutes, or ends before
 */
export async function startInstalledKsvm(options: InstallOptions): Promise<RunningProgram> {
  await bundle();
  const kubeconfig = await install(options);
  const [webhookPort = 0, healthPort = 0] = await freePorts(2);
  const place = {
    kubeconfig,
    "log-level": "info",
    "webhook-host": "127.0.0.1",
    "webhook-port": webhookPort,
    "webhook-url": `https://127.0.0.1:${webhookPort}/validate`,
    "replica-endpoints": `127.0.0.1:${webhookPort}`,
    "health-host": "127.0.0.1",
    "health-port": healthPort,
    "shutdown-drain": "1s",
  };
  const args = Object.entries(place).map(([flag, value]) => `--${flag}=${value}`);
  const program = new RunningProgram(process.execPath, [KSVM, "controller", ...args, ...options.flags], {
    stdout: "ignore",
    stderr: options.log,
    withoutTap: true,
  });
  try {
    await untilReady(program, healthPort);
  } catch (error) {
    await program.kill();
    throw error;
  }
  return program;
}

/** @returns the path of a kubeconfig with a token of the service account */
async function install({ kubeconfig, manifests, dir }: InstallOptions): Promise<string> {
  const { signal } = new AbortController();
  const parts = { clock: systemClock, random: Math.random, signal };
  const { client, close } = await connect({ kubeconfig, variables: {} }, parts);
  const api = new ApiClient(client);
  try {
    await applyAll(api, await render(manifests));
    const { body } = await api.request<{ status: { token: string } }>({
      method: "POST",
      path: `/api/v1/namespaces/${NAMESPACE}/serviceaccounts/${SERVICE_ACCOUNT}/token`,
      body: {
        apiVersion: "authentication.k8s.io/v1",
        kind: "TokenRequest",
        spec: { expirationSeconds: TOKEN_SECONDS },
      },
    });
    // Cluster and context stay as they are: API servers of Go's test framework are reached by a server name of their own.
    const text = parse(readFileSync(kubeconfig, "utf8")) as { users: { user: unknown }[] };
    text.users = text.users.map((user) => ({ ...user, user: { token: body.status.token } }));
    const path = join(dir, `${SERVICE_ACCOUNT}.kubeconfig`);
    writeFileSync(path, JSON.stringify(text), { mode: 0o600 });
    return path;
  } finally {
    await close();
  }
}

async function untilReady(program: RunningProgram, healthPort: number): Promise<void> {
  const deadline = performance.now() + READY_MS;
  const isReady = (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${healthPort}/readyz`, { signal: AbortSignal.timeout(5_000) }).then(
      ({ status }) => status === 200,
      () => false,
    );
  while (!(await isReady())) {
    if (!program.isRunning) throw new Error(`ksvm controller ended with code ${(await program.ended).code}`);
    if (performance.now() > deadline) throw new Error("ksvm controller is not ready in time");
    await sleep(POLL_MS);
  }
}
