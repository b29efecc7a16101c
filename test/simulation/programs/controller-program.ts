import { SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import { WEBHOOK_NAME, WEBHOOK_SECRET, WEBHOOK_SERVICE } from "../../../src/api/names.ts";
import { DEFAULT_FOLLOW_TIMEOUT_MS } from "../../../src/certs/ensure-options.ts";
import { observeRequests } from "../../../src/controller/observe-requests.ts";
import type { MachineParts } from "../../../src/controller/machine-parts.ts";
import { serve } from "../../../src/controller/serve.ts";
import { CONTROLLER_DEFAULTS, type ControllerSettings } from "../../../src/controller/settings.ts";
import { KsvmError, messageOf } from "../../../src/errors.ts";
import type { RunSettings } from "../../../src/migrator/assemble-run.ts";
import { Metrics } from "../../../src/observability/metrics.ts";
import { type HealthCheck, runChecks } from "../../../src/observability/health.ts";
import { DEFAULT_INTERVAL_MS } from "../../../src/trigger/heartbeat-limit.ts";
import type { KindPlan } from "../plan.ts";
import { groupOf } from "../world/kinds.ts";
import { SimProcess } from "../world/sim-process.ts";
import type { World } from "../world/world.ts";
import { certificateSettings, servedIn } from "./certificate-tools.ts";
import { installedIn } from "./installed-webhook.ts";
import { programLogger } from "./program-logger.ts";
import type { Program } from "./started-program.ts";
import { thrownText } from "./thrown-text.ts";
import { servedPart, servingSettings } from "./webhook-program.ts";

/** The groups that the model has of its own: only those are looked after that a plan has a resource of. */
const BUILT_IN_GROUPS = [
  "",
  "admissionregistration.k8s.io",
  "apiextensions.k8s.io",
  "apiregistration.k8s.io",
  "apps",
  "coordination.k8s.io",
  "discovery.k8s.io",
  "events.k8s.io",
  "rbac.authorization.k8s.io",
  "storage.k8s.io",
];

/**
 * What `ksvm controller` has by default; the serving certificate is the business of others.
 * @param kinds that a world has
 */
export function controllerSettings(
  runs: RunSettings,
  trigger: "on" | "off",
  kinds: readonly KindPlan[] = [],
): ControllerSettings {
  const lookedAfter = new Set(kinds.map(groupOf));
  const { concurrentMigrations, finishedMigrationsLimit, certDir, healthHost, healthPort, webhookHost, webhookPort } =
    CONTROLLER_DEFAULTS;
  return {
    namespace: SYSTEM_NAMESPACE,
    webhook: { host: webhookHost, port: webhookPort, certificates: "files", certDir, drainMs: 15_000 },
    certificates: {
      namespace: SYSTEM_NAMESPACE,
      service: WEBHOOK_SERVICE,
      clusterDomain: "cluster.local",
      extraNames: [],
      caLifetimeMs: 86_400_000,
      servingLifetimeMs: 86_400_000,
      renewBefore: 0.5,
      apiServerDwellMs: 1_000,
      replicaDwellMs: 1_000,
      secret: WEBHOOK_SECRET,
      webhookConfiguration: WEBHOOK_NAME,
      timeoutMs: DEFAULT_FOLLOW_TIMEOUT_MS,
    },
    health: { host: healthHost, port: healthPort },
    runs: { ...runs, options: { ...runs.options, leaseNamespace: SYSTEM_NAMESPACE } },
    concurrentMigrations,
    finishedMigrationsLimit,
    trigger:
      trigger === "on"
        ? {
            intervalMs: DEFAULT_INTERVAL_MS,
            excludedGroups: BUILT_IN_GROUPS.filter((group) => !lookedAfter.has(group)),
          }
        : undefined,
  };
}

/** What a {@link ControllerProgram} is started with. */
export interface ControllerProgramOptions {
  /** Unique; the API servers take it for the user. */
  readonly name: string;
  readonly settings: ControllerSettings;
  /** Whether it serves the webhook as well, and keeps its certificates while it leads. @default false */
  readonly servesWebhook?: boolean;
}

/** How a replica ended. */
export type ControllerEnd = "crash" | "stopped" | { readonly error: unknown };

/** One replica of `ksvm controller` in a process of its own, that listens nowhere. */
export class ControllerProgram implements Program {
  readonly process: SimProcess;
  /** Of its own for each process. */
  readonly identity: string;
  /** It works for as long as it runs. */
  readonly isAtRest = true;
  readonly #world: World;
  readonly #settings: ControllerSettings;
  readonly #servesWebhook: boolean;
  readonly #stop = new AbortController();
  #liveness: readonly HealthCheck[] = [];
  #end: ControllerEnd | undefined;

  constructor(world: World, { name, settings, servesWebhook = false }: ControllerProgramOptions) {
    this.#world = world;
    this.#servesWebhook = servesWebhook;
    this.#settings = servesWebhook
      ? { ...settings, certificates: certificateSettings(world), webhook: servingSettings(name) }
      : settings;
    this.identity = `${name}_1`;
    this.process = new SimProcess(world.schedule, name);
    this.process.onCrash(() => {
      this.#end ??= "crash";
    });
    world.schedule.untilEnd(() => this.#stop.abort());
    void this.#begin();
  }

  /** `undefined` while it runs. */
  get end(): ControllerEnd | undefined {
    return this.#end;
  }

  get endText(): string | undefined {
    return typeof this.#end === "object" ? messageOf(this.#end.error) : this.#end;
  }

  /** SIGTERM. */
  interrupt(): void {
    this.process.reach(() => this.#stop.abort(new KsvmError("Interrupted", "Interrupted by SIGTERM")));
  }

  /** What `/livez` finds wrong; `undefined` where nothing. */
  problem(): string | undefined {
    const { passed, report } = runChecks("livez", this.#liveness);
    return passed ? undefined : report;
  }

  async #begin(): Promise<void> {
    const end = await this.#run();
    this.#end ??= end;
    // A pod that has ended is no endpoint of the Service any more.
    if (this.#servesWebhook) this.process.crash();
    this.#world.tell(this.process.name, `ended: ${this.endText}`);
  }

  async #run(): Promise<ControllerEnd> {
    const { clock } = this.process;
    const metrics = new Metrics();
    const client = this.#world.cluster.clientOf(this.process, { observer: observeRequests(metrics) });
    try {
      await serve({
        client,
        clock,
        metrics,
        logger: programLogger(this.#world, this.process, "info"),
        settings: this.#settings,
        identity: this.identity,
        signal: this.#stop.signal,
        machine: this.#machine(),
      });
      return "stopped";
    } catch (error) {
      thrownText(this.#world, this.process.name, error);
      return { error };
    }
  }

  /** Nothing listens. Where the webhook is not served, the freeze is guarded by a policy of each run. */
  #machine(): MachineParts {
    const [world, process] = [this.#world, this.process];
    return {
      startHealth: ({ liveness }) => {
        this.#liveness = liveness;
        return Promise.resolve({ url: "http://sim", close: () => Promise.resolve() });
      },
      openWebhook: (options) => (this.#servesWebhook ? servedPart(world, process, options) : NO_WEBHOOK),
      ...(this.#servesWebhook
        ? { certificates: { keys: installedIn(world).keys, servedBy: servedIn(world, process) } }
        : {}),
    };
  }
}

const NO_WEBHOOK: ReturnType<MachineParts["openWebhook"]> = {
  ready: () => undefined,
  run: (signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
};

/** Starts again what has ended, as kubelet does. @returns all replicas */
export function restartReplicas(world: World): readonly ControllerProgram[] {
  for (const [slot, program] of world.programs.entries()) {
    if (program instanceof ControllerProgram && program.end !== undefined) world.start(slot);
  }
  return world.programs.filter((program) => program instanceof ControllerProgram);
}
