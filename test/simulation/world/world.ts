import type { RunSettings } from "../../../src/migrator/assemble-run.ts";
import { SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import { shippedCrds } from "../../../src/initializer/shipped-crds.ts";
import { holderOf, type Lease } from "../../../src/api/lease.ts";
import { leaseNameOf } from "../../../src/lease/lease-acquire.ts";
import { collectionPath, CRDS } from "../../../src/kube/resources.ts";
import type { EtcdSnapshot } from "../model/etcd.ts";
import { isServing, type KindPlan, type Plan, type ProgramPlan, restsOnFreeze } from "../plan.ts";
import type { Program } from "../programs/started-program.ts";
import type { StartedMigration, Witness } from "../programs/witness.ts";
import { currentWriter } from "./api-server-node.ts";
import { buildOf } from "./builds.ts";
import { converterUrl, crdNameOf, groupOf } from "./kinds.ts";
import { oneOf, spread } from "./random-choices.ts";
import { quietLeftMs } from "./long-stands.ts";
import { RequestTriggers } from "./request-triggers.ts";
import { Schedule } from "./schedule.ts";
import { SimCluster } from "./sim-cluster.ts";
import type { SimProcess } from "./sim-process.ts";
import { type Streams, streamsOf } from "./streams.ts";
import { UserActions } from "./user-actions.ts";
import { conversionWebhook } from "./webhook-answers.ts";

/** After the last disturbance everything has to end in this time, in milliseconds: half an hour. */
export const LIVENESS_MS = 1_800_000;
const LOOK_AGAIN_MS = 1_000;

/** What a {@link World} is made of. */
export interface WorldOptions {
  readonly plan: Plan;
  /** Of all runs; a test that wants to see a violation takes a safeguard away. */
  readonly settings: RunSettings;
  /** Starts a program in a process of that name; API servers take the name for the user. */
  readonly startProgram: (world: World, plan: ProgramPlan, name: string) => Program | undefined;
}

/** A simulated world: a cluster, its users, the programs of ksvm, and what was seen of them. */
export class World {
  readonly plan: Plan;
  readonly settings: RunSettings;
  /** Each actor draws from a stream of its own name. */
  readonly streams: Streams;
  readonly schedule: Schedule;
  readonly cluster: SimCluster;
  readonly user: UserActions;
  /** What happens when ksvm sends a request. */
  readonly triggers: RequestTriggers;
  /** By their slot of the plan; each one that was started in a slot takes the place of the one before. */
  readonly programs: (Program | undefined)[] = [];
  /** Each begins to follow a `ksvm migrate` that starts. */
  readonly witnesses: ((started: StartedMigration) => Witness)[] = [];
  /** Whether an administrator upgrades or restarts the API servers one by one: one does this at a time. */
  isAdministered = false;
  readonly #violations: string[] = [];
  readonly #trace: string[] = [];
  readonly #snapshots: { readonly at: number; readonly snapshot: EtcdSnapshot }[] = [];
  readonly #startProgram: WorldOptions["startProgram"];
  /** What ends where the world is calm. */
  readonly #lasting: (() => void)[] = [];
  #startedAt = 0;
  #starts = 0;
  /** How many programs are to be started later. */
  #dueStarts = 0;
  /** Until then no controller starts. */
  #controllersFrom = Number.NEGATIVE_INFINITY;
  #isCalm = false;
  #calmAt = Number.POSITIVE_INFINITY;

  constructor({ plan, settings, startProgram }: WorldOptions) {
    this.#startProgram = startProgram;
    this.plan = plan;
    const { guard = settings.options.guard } = plan;
    const delay = plan.shutdownDelayMs === undefined ? {} : { shutdownDelayMs: plan.shutdownDelayMs };
    this.settings = { ...settings, options: { ...settings.options, guard, ...delay } };
    this.streams = streamsOf(plan.seed ^ 0x5eed);
    this.schedule = new Schedule(this.streams("order"));
    const { access, servers } = plan;
    const build = buildOf(plan);
    this.cluster = new SimCluster({ schedule: this.schedule, streams: this.streams, servers, access, build });
    for (const { isConverted, plural } of plan.kinds) {
      if (isConverted === true) this.cluster.webhooks.set(converterUrl(plural), CONVERTER);
    }
    this.user = new UserActions(this.cluster, "user", this.streams("user"));
    const resources = plan.kinds.map((kind) => ({ group: groupOf(kind), resource: kind.plural }));
    this.triggers = new RequestTriggers(resources, (ms, run) => this.schedule.in(ms, run));
    this.cluster.onSend = (request) => this.triggers.sent(request);
    if (process.env["TRACE"] === "requests") {
      this.cluster.onRequest(({ method, path, query, user }, server, { kind }) =>
        this.tell(user, `${method} ${path}?${query.toString().slice(0, 60)} -> ${server} ${kind}`),
      );
    }
  }

  /** What must never be, and was. */
  get violations(): readonly string[] {
    return this.#violations;
  }

  get isBroken(): boolean {
    return this.#violations.length > 0;
  }

  /** What happened, one line for each. */
  get trace(): readonly string[] {
    return this.#trace;
  }

  /** Whether every program has ended, or does nothing any more, and none is to be started. */
  get isAtRest(): boolean {
    return this.#dueStarts === 0 && this.programs.every((program) => program?.isAtRest ?? true);
  }

  /** Whether a controller runs, also one that stands still. */
  get isControlled(): boolean {
    const isController = (slot: number): boolean => this.plan.programs[slot]?.run === "controller";
    return this.programs.some((program, slot) => isController(slot) && program?.process.isAlive === true);
  }

  /** No controller starts for so many milliseconds. */
  keepControllersAway(ms: number): void {
    this.#controllersFrom = this.schedule.now + ms;
  }

  /** Whether all disturbances are over. */
  get isCalm(): boolean {
    return this.#isCalm;
  }

  /** When they were over; `Infinity` before that. */
  get calmAt(): number {
    return this.#calmAt;
  }

  kindAt(index: number): KindPlan | undefined {
    return this.plan.kinds[index];
  }

  /** Namespaces, CRDs and objects, and time for all API servers to follow. */
  async setUp(): Promise<void> {
    for (const name of ["default", "kube-system", SYSTEM_NAMESPACE]) await this.user.createNamespace(name);
    if (this.plan.programs.some(({ run }) => run === "controller")) {
      for (const crd of shippedCrds()) await this.user.send("POST", collectionPath(CRDS), crd);
    }
    for (const kind of this.plan.kinds) {
      if (kind.isBuiltIn !== true) await this.user.createCrd(kind, kind.createdIn);
      await this.schedule.wait(1_000);
      for (let index = 0; index < kind.objects; index++) await this.user.create(kind, kind.createdIn, index);
    }
    await this.schedule.wait(this.plan.ageMs ?? 120_000);
  }

  /** From now on times of the plan count, and users write. */
  begin(): void {
    this.#startedAt = this.schedule.now;
    void this.#keepWriting();
  }

  /**
   * Starts the program of a slot; one that runs there already crashes. Where API servers stood still for long a command that freezes CRDs is started
   * later, see `quietLeftMs()`, and where one that is late ends, see `isUnseen()`; but not where it takes over the Lease of a run that died.
   */
  start(slot: number, changes: Partial<ProgramPlan> = {}): void {
    const plan = this.plan.programs[slot];
    if (plan === undefined) return;
    const leftMs = this.#quietLeftMs(plan, slot);
    if (leftMs > 0) {
      this.#dueStarts++;
      this.schedule.in(leftMs, () => {
        this.#dueStarts--;
        this.start(slot, changes);
      });
      return;
    }
    this.programs[slot]?.process.crash();
    this.programs[slot] = this.#startProgram(this, { ...plan, ...changes }, `ksvm-${slot}-${this.#starts++}`);
  }

  /**
   * Has the programs of all slots go on that stand still.
   * @param wake what has a process go on
   */
  wakePrograms(wake = (process: SimProcess): void => process.wake()): void {
    for (const program of this.programs) if (program?.process.isPaused === true) wake(program.process);
  }

  #quietLeftMs(plan: ProgramPlan, slot: number): number {
    const { run } = plan;
    // A replica that begins to lead takes whatever it cannot know for a silence, and for a departure.
    if (run === "controller") return Math.max(0, this.#controllersFrom - this.schedule.now);
    // Nor does a command that freezes nothing begin without a wait for late writes.
    if (!restsOnFreeze(this.plan, plan) || plan.startsAtOnce === true || this.#takesOver(plan, slot)) return 0;
    if (this.cluster.leaving.some(({ isLate }) => isLate)) return LOOK_AGAIN_MS;
    return quietLeftMs(
      this.schedule.now,
      this.cluster.nodes.map(({ process }) => process),
    );
  }

  /** Whether a run died on this resource, and left its Lease: one that takes it over takes whatever it cannot know for a silence, and for a departure. */
  #takesOver({ kind }: ProgramPlan, slot: number): boolean {
    const resource = this.plan.kinds[kind];
    if (resource === undefined) return false;
    const lease = this.cluster.etcd.get(
      `/registry/leases/${this.settings.options.leaseNamespace}/${leaseNameOf(crdNameOf(resource))}`,
    );
    const [holder = ""] = holderOf(lease?.object as unknown as Lease | undefined).split("_");
    const isOther = (program: Program | undefined, at: number): boolean =>
      at !== slot && program?.process.name === holder;
    return holder !== "" && !this.programs.some((program, at) => isOther(program, at) && program?.process.isAlive);
  }

  /** Users write, as many times as `count` says, within `ms` milliseconds. */
  burst(count: number, ms: number): void {
    const random = this.streams("writes");
    for (let index = 0; index < count; index++) this.schedule.in(random() * ms, () => this.#write());
  }

  /** The newest state of etcd that is at least so old, in milliseconds; `undefined` where none was kept. */
  snapshotBefore(ageMs: number): EtcdSnapshot | undefined {
    return this.#snapshots.findLast(({ at }) => at <= this.schedule.now - ageMs)?.snapshot;
  }

  /** Ends all disturbances. */
  calm(): void {
    this.tell("world", "all disturbances are over");
    this.#isCalm = true;
    this.#calmAt = this.schedule.now;
    this.cluster.endInterferences();
    this.cluster.denied = [];
    this.triggers.disarm();
    for (const end of this.#lasting.splice(0)) end();
    this.cluster.endLeaving();
    for (const node of this.cluster.nodes) {
      node.quicken();
      node.followPromptly();
    }
    if (this.plan.programs.some(isServing)) this.#correctClocks();
    this.cluster.wakeAll();
    this.wakePrograms();
    this.#startReplicas();
  }

  /** Starts each replica that crashed, as kubelet does: what the plan starts later than that is not played any more. */
  #startReplicas(): void {
    for (const [slot, program] of this.plan.programs.entries()) {
      const isReplica = isServing(program) || program.run === "controller";
      if (isReplica && this.programs[slot]?.process.isAlive === false) this.start(slot);
    }
  }

  /** No certificate is replaced as long as clocks disagree. */
  #correctClocks(): void {
    const processes = [...this.cluster.nodes, ...this.programs].flatMap((owner) => owner?.process ?? []);
    for (const process of processes) process.jump(-process.aheadMs);
  }

  /** For how long something lasts: so many milliseconds, and no longer than until all disturbances are over. */
  lasting(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.schedule.in(ms, resolve);
    this.#lasting.push(resolve);
    return promise;
  }

  violate(violation: string): void {
    this.tell("CHECK", violation);
    this.#violations.push(violation);
  }

  tell(who: string, what: string): void {
    const at = ((this.schedule.now - this.#startedAt) / 1_000).toFixed(3);
    this.#trace.push(`${at.padStart(10)} r${this.cluster.etcd.revision} ${who}: ${what}`);
  }

  async #keepWriting(): Promise<void> {
    const random = this.streams("writes");
    const { writeEveryMs } = this.plan;
    while (!this.#isCalm) {
      this.#snapshots.push({ at: this.schedule.now, snapshot: this.cluster.etcd.snapshot() });
      await this.schedule.wait(spread(random, writeEveryMs / 10, writeEveryMs * 3));
      this.#write();
    }
  }

  #write(): void {
    if (this.#isCalm) return;
    const random = this.streams("writes");
    const kind = oneOf(random, this.plan.kinds);
    const version = oneOf(random, kind.versions);
    const write = oneOf(random, ["create", "update", "update", "delete"] as const);
    void this.user[write](kind, version, Math.floor(random() * 30));
  }
}

/** Changes the apiVersion, and a field that only its version has. */
export const CONVERTER = conversionWebhook((object, apiVersion) => ({
  ...object,
  apiVersion,
  spec: { ...object.spec, converted: apiVersion },
}));

/** Whether ksvm writes the revision that etcd tells of at this moment. */
export function isByKsvm(): boolean {
  return currentWriter()?.startsWith("ksvm") === true;
}
