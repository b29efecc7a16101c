import { SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { CERTIFICATE_SECRET, WEBHOOK_SERVICE } from "../../src/api/names.ts";
import { WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { DEFAULT_SETTLE_MS } from "../../src/apiservers/settle.ts";
import { DEFAULT_FOLLOW_TIMEOUT_MS } from "../../src/certs/rotation-plan.ts";
import type { MachineParts } from "../../src/controller/replica.ts";
import { serve } from "../../src/controller/serve.ts";
import { CONTROLLER_DEFAULTS, type ControllerSettings } from "../../src/controller/settings.ts";
import { KsvmError, messageOf } from "../../src/errors.ts";
import { migrate, type RunSettings } from "../../src/migrator/migrate.ts";
import { CleanupFailed } from "../../src/migrator/migrate-crd.ts";
import type { MigrationEnd, MigrationEvent, MigrationResult } from "../../src/migrator/types.ts";
import { type HealthCheck, runChecks } from "../../src/observability/health.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { configurationOf, encryptionEvidence } from "../../src/reencrypt/evidence.ts";
import { reencryptResource } from "../../src/reencrypt/reencrypt.ts";
import { DEFAULT_INTERVAL_MS } from "../../src/trigger/trigger.ts";
import { pino } from "pino";
import type { KindPlan, ProgramPlan } from "./plan.ts";
import { groupOf, resourceOf } from "./world/kinds.ts";
import { SimProcess } from "./world/process.ts";
import type { Program, ProgramEnd, World } from "./world/world.ts";

// The programs of ksvm in simulated worlds: the one place where the simulation knows how they are made.

/** What `ksvm migrate` has by default, and so few requests under way that most worlds have more objects than that. */
const SETTINGS = { settleMs: DEFAULT_SETTLE_MS, maxInFlight: 16 } satisfies RunSettings;

/** Starts what a plan names. `name` is that of its process, and of its user at the API servers: it begins with `ksvm`. */
export function startProgram(world: World, plan: ProgramPlan, name: string): Program | undefined {
  const kind = world.plan.kinds[plan.kind];
  if (kind === undefined) return undefined;
  return plan.run === "controller" ? new Controller(world, plan, kind, name) : new Command(world, plan, kind, name);
}

function settingsOf({ plan, sabotage }: World): RunSettings {
  const settings = { ...SETTINGS, maxInFlight: plan.maxInFlight ?? SETTINGS.maxInFlight };
  return sabotage?.settings?.(settings) ?? settings;
}

/** A program in a process of its own, until it ends or crashes. */
abstract class SimProgram implements Program {
  readonly process: SimProcess;
  readonly plan: ProgramPlan;
  readonly kind: KindPlan;
  protected readonly world: World;
  /** Has it end, as a signal does. */
  protected readonly stop = new AbortController();
  #end: ProgramEnd | undefined;

  constructor(world: World, plan: ProgramPlan, kind: KindPlan, name: string) {
    this.world = world;
    this.plan = plan;
    this.kind = kind;
    this.process = new SimProcess(world.schedule, name);
    this.process.onCrash(() => this.over({ how: "crashed", text: "", failed: 0 }));
    world.schedule.untilEnd(() => this.stop.abort());
  }

  get end(): ProgramEnd | undefined {
    return this.#end;
  }

  abstract readonly isAtRest: boolean;
  abstract interrupt(): void;

  protected over(end: ProgramEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.world.ended(this, end);
  }
}

/** One `ksvm migrate`, or `ksvm reencrypt` of one resource. */
class Command extends SimProgram {
  #isUnclean = false;

  constructor(world: World, plan: ProgramPlan, kind: KindPlan, name: string) {
    super(world, plan, kind, name);
    void this.#run();
  }

  get isAtRest(): boolean {
    return this.end !== undefined;
  }

  interrupt(): void {
    this.stop.abort(new KsvmError("Interrupted", "Interrupted by SIGINT"));
  }

  async #run(): Promise<void> {
    const { plan, process, world } = this;
    const kinds = [plan.kind, ...(plan.also ?? [])].flatMap((index) => world.plan.kinds[index] ?? []);
    const ends = (await this.#migrate(kinds.map(resourceOf))).map((end): ProgramEnd => {
      if ("result" in end) return endOf(end.result);
      this.#isUnclean ||= end.error instanceof CleanupFailed;
      return { how: "failed", text: thrownText(world, process, end.error), failed: 0 };
    });
    if (!process.isAlive) return;
    const [first, ...others] = ends.map((end) => ({ ...end, isUnclean: this.#isUnclean }));
    for (const [at, end] of others.entries()) {
      const kind = kinds[at + 1];
      if (kind !== undefined) world.ended({ process, plan, kind }, end);
    }
    if (first !== undefined) this.over(first);
  }

  async #migrate(names: readonly string[]): Promise<readonly MigrationEnd[]> {
    const client = this.world.cluster.clientOf(this.process);
    const options = {
      ...settingsOf(this.world),
      identity: `${this.process.name}_1`,
      signal: this.stop.signal,
      onEvent: (event: MigrationEvent) => this.#tell(event),
    };
    if (this.plan.run !== "reencrypt") return migrate(client, names, { ...options, force: this.plan.force });
    const [name = ""] = names;
    return [
      await reencryptResource(client, name, { ...options, evidence: encryptionEvidence() }).then(
        (result) => ({ name, result }),
        (error: unknown) => ({ name, error }),
      ),
    ];
  }

  #tell(event: MigrationEvent): void {
    this.#isUnclean ||= event.type === "warning" && event.message.startsWith("Cannot clean up");
    if (event.type !== "progress") this.world.tell(this.process.name, JSON.stringify(event));
  }
}

function endOf({ epoch, crd = epoch, outcome, tally }: MigrationResult): ProgramEnd {
  const [first] = tally?.failures ?? [];
  const text = first === undefined ? "" : `${first.name}: ${first.reason}`;
  const encryption = configurationOf(epoch);
  return { how: outcome as ProgramEnd["how"], text, failed: tally?.failed ?? 0, crd, encryption };
}

/** What only a mistake in the code throws, whatever the network answers. */
const MISTAKES = [EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError] as const;

/** The text of what a program logs, or ends with. It is a violation where only a mistake in the code throws it. */
function thrownText(world: World, { name }: SimProcess, thrown: unknown): string {
  const mistake = MISTAKES.find((type) => thrown instanceof type);
  if (mistake !== undefined) world.violate(`mistake: ${name} threw a ${mistake.name}: ${messageOf(thrown)}`);
  return messageOf(thrown);
}

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

/** One replica of `ksvm controller`, that listens nowhere: others serve the webhook where there is one. */
class Controller extends SimProgram {
  /** It works for as long as it runs. */
  readonly isAtRest = true;
  #liveness: readonly HealthCheck[] = [];

  constructor(world: World, plan: ProgramPlan, kind: KindPlan, name: string) {
    super(world, plan, kind, name);
    void this.#run();
  }

  interrupt(): void {
    const { passed, report } = runChecks("livez", this.#liveness);
    if (!passed) this.world.violate(`controllers: /livez of ${this.process.name}: ${report}`);
    this.process.reach(() => this.stop.abort(new KsvmError("Interrupted", "Interrupted by SIGTERM")));
  }

  async #run(): Promise<void> {
    const world = this.world;
    const err = (error: unknown): string => thrownText(world, this.process, error);
    const write = (line: string): void => world.tell(this.process.name, line.slice(1, -2));
    try {
      await serve({
        client: world.cluster.clientOf(this.process),
        clock: this.process.clock,
        metrics: new Metrics(),
        logger: pino({ base: null, timestamp: false, serializers: { err } }, { write }),
        settings: controllerSettings(settingsOf(world), this.plan.trigger ?? "on", world.plan.kinds),
        identity: `${this.process.name}_1`,
        signal: this.stop.signal,
        machine: this.#machine(),
      });
      this.over({ how: "stopped", text: "", failed: 0 });
    } catch (error) {
      this.over({ how: "failed", text: thrownText(world, this.process, error), failed: 0 });
    }
  }

  #machine(): MachineParts {
    return {
      startHealth: ({ liveness }) => {
        this.#liveness = liveness;
        return Promise.resolve({ url: "http://sim", close: () => Promise.resolve() });
      },
      openWebhook: () => ({
        ready: () => undefined,
        run: (signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
      }),
    };
  }
}

/** What `ksvm controller` has by default; the webhook and its certificate are the business of others. */
function controllerSettings(runs: RunSettings, trigger: "on" | "off", kinds: readonly KindPlan[]): ControllerSettings {
  const lookedAfter = new Set(kinds.map(groupOf));
  const excludedGroups = BUILT_IN_GROUPS.filter((group) => !lookedAfter.has(group));
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
      secret: CERTIFICATE_SECRET,
      webhookConfiguration: WEBHOOK_NAME,
      timeoutMs: DEFAULT_FOLLOW_TIMEOUT_MS,
    },
    health: { host: healthHost, port: healthPort },
    runs: { ...runs, leaseNamespace: SYSTEM_NAMESPACE },
    concurrentMigrations,
    finishedMigrationsLimit,
    trigger: trigger === "on" ? { intervalMs: DEFAULT_INTERVAL_MS, excludedGroups } : undefined,
  };
}
