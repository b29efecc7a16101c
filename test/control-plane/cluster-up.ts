// Starts a control plane that stays until `make cluster-down`: node test/control-plane/cluster-up.ts
import {
  type ClusterState,
  ENV_FILE,
  RUN_DIR,
  readClusterState,
  removeCluster,
  runningProcesses,
  writeClusterState,
} from "./cluster-state.ts";
import { type ControlPlaneOptions, startControlPlane } from "./control-plane.ts";

const HELP = `Settings (environment):
  APISERVERS=2                    how many apiservers (1)
  FEATURE_GATES=A=true,B=false    as for --feature-gates
  RUNTIME_CONFIG=group/version=true
  EMULATED_VERSION=1.33
  COMPACTION_INTERVAL=30s         as for --etcd-compaction-interval
  REQUEST_TIMEOUT=10s
  EXTRA_ARGS="--v=4 …"            further flags of the apiservers
  CONTROLLERS=a,b                 also starts a kube-controller-manager with these controllers`;

try {
  if (process.argv.includes("--help")) console.log(HELP);
  else await up();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}

async function up(): Promise<void> {
  const existing = readClusterState();
  if (existing !== undefined && runningProcesses(existing).length > 0) {
    throw new Error(
      `Cannot start a control plane: one is running already (see ${ENV_FILE}); end it by: make cluster-down`,
    );
  }
  removeCluster();
  const gates = settings("FEATURE_GATES");
  const controlPlane = await startControlPlane({ ...optionsFromEnvironment(), dir: RUN_DIR });
  try {
    const controllers = process.env["CONTROLLERS"];
    if (controllers) {
      await controlPlane.startControllerManager({
        controllers: controllers.split(","),
        ...(gates ? { featureGates: gates } : {}),
      });
    }
  } catch (error) {
    await controlPlane.stop();
    throw error;
  }
  const state: ClusterState = {
    kubeconfig: controlPlane.kubeconfigFor(),
    apiservers: controlPlane.apiservers.map(({ url }) => url),
    etcd: controlPlane.etcd.url,
    pids: Object.fromEntries(controlPlane.processes.map(({ name, pid }) => [name, pid ?? 0])),
  };
  writeClusterState(state);
  controlPlane.detach();
  console.log(`${state.apiservers.length} apiserver(s) at ${state.apiservers.join(", ")}; etcd at ${state.etcd}`);
  console.log(`Details: ${ENV_FILE}; logs: ${RUN_DIR}; end it by: make cluster-down\n`);
  console.log(`export KUBECONFIG=${state.kubeconfig}`);
}

function optionsFromEnvironment(): ControlPlaneOptions {
  const apiservers = Number(process.env["APISERVERS"] || 1);
  if (!Number.isInteger(apiservers) || apiservers < 1) throw new Error("APISERVERS must be a whole number from 1");
  const { EMULATED_VERSION, COMPACTION_INTERVAL, REQUEST_TIMEOUT, EXTRA_ARGS } = process.env;
  const featureGates = settings("FEATURE_GATES");
  const runtimeConfig = settings("RUNTIME_CONFIG");
  return {
    apiservers,
    ...(featureGates ? { featureGates } : {}),
    ...(runtimeConfig ? { runtimeConfig } : {}),
    ...(EMULATED_VERSION ? { emulatedVersion: EMULATED_VERSION } : {}),
    ...(COMPACTION_INTERVAL ? { compactionInterval: COMPACTION_INTERVAL } : {}),
    ...(REQUEST_TIMEOUT ? { requestTimeout: REQUEST_TIMEOUT } : {}),
    ...(EXTRA_ARGS ? { extraArgs: EXTRA_ARGS.trim().split(/\s+/) } : {}),
  };
}

/** Reads "A=true,B=false". */
function settings(variable: string): Record<string, boolean> | undefined {
  const text = process.env[variable];
  if (!text) return undefined;
  const entries = text.split(",").map((pair) => {
    const [key = "", value] = pair.split("=");
    if (value !== "true" && value !== "false") throw new Error(`${variable} must read like Name=true, not "${pair}"`);
    return [key, value === "true"] as const;
  });
  return Object.fromEntries(entries);
}
