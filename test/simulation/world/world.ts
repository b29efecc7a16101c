import { SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import { shippedCrds } from "../../../src/initializer/shipped-crds.ts";
import { CRDS, WEBHOOK_CONFIGURATIONS } from "../../../src/kube/objects.ts";
import type { RunSettings } from "../../../src/migrator/migrate.ts";
import type { KindPlan, Plan, ProgramPlan } from "../plan.ts";
import { currentWriter } from "./api-server.ts";
import { SimCluster } from "./cluster.ts";
import { buildOf, groupOf } from "./kinds.ts";
import type { Edge } from "./network.ts";
import type { SimProcess } from "./process.ts";
import { oneOf, spread, type Streams, streamsOf } from "./random.ts";
import { RequestTriggers } from "./requests.ts";
import { Schedule } from "./schedule.ts";
import { UserActions } from "./users.ts";
import { GUARD_CONFIGURATION, GUARD_URL, GUARD_WEBHOOK } from "./webhooks.ts";

/** What a program of ksvm works on. */
export interface Work {
  readonly process: SimProcess;
  readonly plan: ProgramPlan;
  readonly kind: KindPlan;
}

/** A program of ksvm that runs in a world. */
export interface Program extends Work {
  /** Whether nothing more is to come of it, as long as nobody disturbs it: it ended, or waits for work. */
  readonly isAtRest: boolean;
  /** How it ended; `undefined` while it runs. */
  readonly end: ProgramEnd | undefined;
  /** Asks it to end, as by SIGTERM. */
  interrupt(): void;
}

/** How a program of ksvm ended. */
export interface ProgramEnd {
  readonly how: "migrated" | "nothing-to-do" | "incomplete" | "failed" | "stopped" | "crashed";
  /** In words, as a user reads them. */
  readonly text: string;
  /** How many objects failed. */
  readonly failed: number;
  /** Whether it said that it could not clean up. @default false */
  readonly isUnclean?: boolean;
  /** `uid/generation` of the CRD that it speaks of. */
  readonly crd?: string | undefined;
  /** The digest of the encryption configuration that it speaks of. */
  readonly encryption?: string | undefined;
}

/** Something that is broken about ksvm, at its edges: its options, and what it sends and understands. */
export interface Sabotage {
  readonly name: string;
  /** The name of the aim of the worlds that it is played in. */
  readonly aim: string;
  /** Within so many seeds something breaks, from the first one on. */
  readonly seeds: number;
  readonly settings?: (settings: RunSettings) => RunSettings;
  readonly edge?: (world: World) => Edge;
}

/** What a {@link World} is made of. */
interface WorldOptions {
  readonly plan: Plan;
  /** What is broken about ksvm. */
  readonly sabotage: Sabotage | undefined;
  /** Starts a program in a process of that name; API servers take the name for the user. */
  readonly startProgram: (world: World, plan: ProgramPlan, name: string) => Program | undefined;
}

/** A simulated world: a cluster, its users, the programs of ksvm, and what was seen of them. */
export class World {
  readonly plan: Plan;
  readonly sabotage: Sabotage | undefined;
  /** Each actor draws from a stream of its own name. */
  readonly streams: Streams;
  readonly schedule: Schedule;
  readonly cluster: SimCluster;
  readonly user: UserActions;
  /** What happens when ksvm sends a request. */
  readonly triggers: RequestTriggers;
  /** By their slot of the plan; each one that was started in a slot takes the place of the one before. */
  readonly programs: (Program | undefined)[] = [];
  /** Told of each program that starts, and how each ends, kind by kind. */
  readonly onStart: ((program: Program) => void)[] = [];
  readonly onEnd: ((work: Work, end: ProgramEnd) => void)[] = [];
  /** Whether an administrator upgrades or restarts the API servers one by one: one does this at a time. */
  isAdministered = false;
  readonly #violations: string[] = [];
  readonly #trace: string[] = [];
  readonly #startProgram: WorldOptions["startProgram"];
  readonly #byName = new Map<string, Program>();
  /** What ends where the world is calm. */
  readonly #lasting: (() => void)[] = [];
  #startedAt = 0;
  #starts = 0;
  #isCalm = false;

  constructor({ plan, sabotage, startProgram }: WorldOptions) {
    this.#startProgram = startProgram;
    this.plan = plan;
    this.sabotage = sabotage;
    this.streams = streamsOf(plan.seed ^ 0x5eed);
    this.schedule = new Schedule(this.streams("order"));
    const { access, servers } = plan;
    const edge = sabotage?.edge?.(this) ?? {};
    this.cluster = new SimCluster({
      schedule: this.schedule,
      streams: this.streams,
      servers,
      access,
      build: buildOf(plan),
      edge,
    });
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

  /** Whether every program has ended, or does nothing any more. */
  get isAtRest(): boolean {
    return this.programs.every((program) => program?.isAtRest ?? true);
  }

  /** Whether all disturbances are over. */
  get isCalm(): boolean {
    return this.#isCalm;
  }

  get hasController(): boolean {
    return this.plan.programs.some(({ run }) => run === "controller");
  }

  /** Namespaces, CRDs and objects, and time for all API servers to follow. */
  async setUp(): Promise<void> {
    for (const name of ["default", "kube-system", SYSTEM_NAMESPACE]) await this.user.createNamespace(name);
    if (this.hasController) {
      for (const crd of shippedCrds()) await this.user.send("POST", CRDS, crd);
    }
    if (this.plan.hasWebhook === true) {
      this.cluster.webhooks.set(GUARD_URL, GUARD_WEBHOOK);
      await this.user.send("POST", WEBHOOK_CONFIGURATIONS, GUARD_CONFIGURATION);
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

  /** Starts the program of a slot; one that runs there already crashes. Once all disturbances are over, nobody migrates by hand. */
  start(slot: number, changes: Partial<ProgramPlan> = {}): void {
    const plan = this.plan.programs[slot];
    if (plan === undefined || (this.#isCalm && plan.run !== "controller")) return;
    this.programs[slot]?.process.crash();
    const program = this.run({ ...plan, ...changes }, `ksvm-${slot}-${this.#starts++}`);
    this.programs[slot] = program;
  }

  /** Starts a program beside those of the plan. */
  run(plan: ProgramPlan, name: string): Program | undefined {
    const program = this.#startProgram(this, plan, name);
    if (program === undefined) return undefined;
    this.#byName.set(name, program);
    for (const told of this.onStart) told(program);
    return program;
  }

  /** A program has ended what it was to do with a kind. */
  ended(work: Work, end: ProgramEnd): void {
    this.tell(work.process.name, `ended, ${end.how}: ${end.text}`);
    for (const told of this.onEnd) told(work, end);
  }

  /** The process of ksvm that has this name. */
  programNamed(name: string): Program | undefined {
    return this.#byName.get(name);
  }

  /** Users write, as many times as `count` says, within `ms` milliseconds. */
  burst(count: number, ms: number): void {
    const random = this.streams("writes");
    for (let index = 0; index < count; index++) this.schedule.in(random() * ms, () => this.#write());
  }

  /** Ends all disturbances. */
  calm(): void {
    this.tell("world", "all disturbances are over");
    this.#isCalm = true;
    this.cluster.endInterferences();
    this.cluster.denied = [];
    this.triggers.disarm();
    for (const end of this.#lasting.splice(0)) end();
    this.cluster.calm();
    for (const program of this.programs) if (program?.process.isPaused === true) program.process.wake();
    // As kubelet does: what the plan starts later than that is not played any more.
    for (const [slot, { run }] of this.plan.programs.entries()) {
      if (run === "controller" && this.programs[slot]?.end !== undefined) this.start(slot);
    }
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

/** Whether ksvm writes the revision that etcd tells of at this moment. */
export function isByKsvm(): boolean {
  return currentWriter()?.startsWith("ksvm") === true;
}
