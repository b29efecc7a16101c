import { storageVersionOf, storedVersionsOf, type CustomResourceDefinition } from "../../src/api/crd.ts";
import { OWNER_ANNOTATION } from "../../src/api/names.ts";
import { freezerOf } from "../../src/api/owner.ts";
import { messageOf } from "../../src/errors.ts";
import { randomFrom } from "../chaos/random.ts";
import { StoredVersionsCheck } from "./checks/stored-versions-check.ts";
import { crdNameOf } from "./kinds.ts";
import type { RunSettings } from "../../src/migrator/assemble-run.ts";
import { MigrateProgram, type ProgramEnd, SETTINGS } from "./migrate-program.ts";
import type { Action, KindPlan, Plan } from "./plan.ts";
import { UserActions } from "./user-actions.ts";
import { oneIn, oneOf, spread } from "./world/random-choices.ts";
import { currentWriter } from "./world/api-server-node.ts";
import type { EtcdSnapshot } from "./model/etcd.ts";
import { Schedule } from "./world/schedule.ts";
import { SimCluster } from "./world/sim-cluster.ts";

/** What a simulation showed. */
export interface Outcome {
  /** What must never be; empty where all went well. */
  readonly violations: readonly string[];
  /** What happened, one line for each. */
  readonly trace: readonly string[];
  readonly events: number;
  readonly requests: number;
  /** Simulated milliseconds. */
  readonly elapsedMs: number;
  readonly ends: readonly string[];
}

/** After the last disturbance everything has to end in this time, in milliseconds: half an hour. */
const LIVENESS_MS = 1_800_000;
const CRD_PREFIX = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/**
 * Plays a plan. It is the same each time.
 * @param settings of all runs; a test that wants to see a violation takes a safeguard away
 */
export async function simulate(plan: Plan, settings: RunSettings = SETTINGS): Promise<Outcome> {
  const original = Math.random;
  const random = randomFrom(plan.seed ^ 0x5eed);
  Math.random = random;
  try {
    return await new Simulation(plan, settings, random).run();
  } finally {
    Math.random = original;
  }
}

class Simulation {
  readonly #plan: Plan;
  readonly #settings: RunSettings;
  readonly #random: () => number;
  readonly #schedule: Schedule;
  readonly #cluster: SimCluster;
  readonly #user: UserActions;
  readonly #programs: MigrateProgram[] = [];
  readonly #violations: string[] = [];
  readonly #trace: string[] = [];
  #startedAt = 0;
  #isCalm = false;
  readonly #snapshots: { readonly at: number; readonly snapshot: EtcdSnapshot }[] = [];
  #starts = 0;

  constructor(plan: Plan, settings: RunSettings, random: () => number) {
    this.#plan = plan;
    this.#settings = settings;
    this.#random = random;
    this.#schedule = new Schedule(random);
    const { access, servers } = plan;
    this.#cluster = new SimCluster({ schedule: this.#schedule, random, servers, access });
    this.#user = new UserActions(this.#cluster, "user", random);
    if (process.env["TRACE"] === "requests") {
      this.#cluster.onRequest = ({ method, path, query, user }, server, { kind }) =>
        this.#tell(user, `${method} ${path}?${query.toString().slice(0, 60)} -> ${server} ${kind}`);
    }
  }

  async run(): Promise<Outcome> {
    const { kinds, actions } = this.#plan;
    let isSetUp = false;
    void this.#setUp().then(() => (isSetUp = true));
    if (!(await this.#schedule.run(() => isSetUp, 3_600_000))) throw new Error("the world cannot be set up");
    const check = new StoredVersionsCheck((violation) => this.#violate(violation), isByKsvm);
    check.follow(this.#cluster.etcd);
    this.#startedAt = this.#schedule.now;
    void this.#write();
    for (const action of actions) this.#schedule.in(action.at, () => this.#act(action));
    const lastAt = Math.max(0, ...actions.map((action) => action.at + ("ms" in action ? Math.abs(action.ms) : 0)));
    const isBroken = (): boolean => this.#violations.length > 0;
    await this.#schedule.run(isBroken, lastAt + 1_000);
    this.#calm();
    const areOver = (): boolean => isBroken() || this.#programs.every(({ end }) => end !== undefined);
    if (!(await this.#schedule.run(areOver, LIVENESS_MS))) this.#violate("liveness: a run does not end");
    // API servers follow what was removed last.
    await this.#schedule.run(isBroken, 60_000);
    // What the disturbed runs left is for one that nobody disturbs.
    for (const kind of kinds) await this.#finish(kind);
    return {
      violations: this.#violations,
      trace: this.#trace,
      events: this.#schedule.events,
      requests: this.#cluster.requests,
      elapsedMs: this.#schedule.now,
      ends: this.#programs.map(({ end }) => endText(end)),
    };
  }

  async #setUp(): Promise<void> {
    for (const name of ["default", "kube-system"]) await this.#user.createNamespace(name);
    for (const kind of this.#plan.kinds) {
      await this.#user.createCrd(kind, kind.createdIn);
      await this.#schedule.wait(1_000);
      for (let index = 0; index < kind.objects; index++) await this.#user.create(kind, kind.createdIn, index);
    }
    await this.#schedule.wait(120_000);
  }

  /** What users do all the time, until the disturbances are over. */
  async #write(): Promise<void> {
    const { kinds, writeEveryMs } = this.#plan;
    while (!this.#isCalm) {
      this.#snapshots.push({ at: this.#schedule.now, snapshot: this.#cluster.etcd.snapshot() });
      await this.#schedule.wait(spread(this.#random, writeEveryMs / 10, writeEveryMs * 3));
      const kind = oneOf(this.#random, kinds);
      const version = oneOf(this.#random, kind.versions);
      const write = oneOf(this.#random, ["create", "update", "update", "delete"] as const);
      void this.#user[write](kind, version, Math.floor(this.#random() * 30));
    }
  }

  #start(index: number): void {
    const kind = this.#plan.kinds[index % this.#plan.kinds.length];
    if (kind === undefined) return;
    const name = `ksvm-${index}-${this.#starts++}`;
    this.#programs[index] = new MigrateProgram({
      schedule: this.#schedule,
      cluster: this.#cluster,
      settings: this.#settings,
      name,
      resource: crdNameOf(kind),
      force: this.#plan.force,
      onEvent: (event) => event.type !== "progress" && this.#tell(name, JSON.stringify(event)),
    });
  }

  /** Ends all disturbances. */
  #calm(): void {
    this.#tell("world", "all disturbances are over");
    this.#isCalm = true;
    this.#cluster.interference = () => undefined;
    for (const node of this.#cluster.nodes) {
      node.slownessMs = 0;
      Object.assign(node.lags, { crds: 1, handlers: 50, discovery: 50, admission: 50, cache: 5 });
      if (node.process.isPaused) node.process.wake();
    }
    for (const { process } of this.#programs) if (process.isPaused) process.wake();
  }

  async #finish(kind: KindPlan): Promise<void> {
    if (this.#violations.length > 0) return;
    const name = crdNameOf(kind);
    const last = new MigrateProgram({
      schedule: this.#schedule,
      cluster: this.#cluster,
      settings: this.#settings,
      name: "ksvm-last",
      resource: name,
      force: false,
      onEvent: (event) => event.type !== "progress" && this.#tell("ksvm-last", JSON.stringify(event)),
    });
    const isOver = (): boolean => this.#violations.length > 0 || last.end !== undefined;
    if (!(await this.#schedule.run(isOver, LIVENESS_MS))) this.#violate("liveness: the last run does not end");
    this.#tell("ksvm-last", endText(last.end));
    this.#judgeEnd(kind, last.end);
  }

  #judgeEnd(kind: KindPlan, end: ProgramEnd | undefined): void {
    const crd = this.#crdOf(kind);
    if (crd === undefined || this.#violations.length > 0) return;
    // Users who freeze a CRD, or make a freeze look like theirs, lift it themselves.
    const isForeign = freezerOf(crd.metadata)?.kind === "other" || isMadeUp(crd);
    if (end?.kind !== "result") {
      if (!isForeign) this.#violate(`liveness: an undisturbed run ends with ${endText(end)}`);
      return;
    }
    const stored = storedVersionsOf(crd).join(" ");
    if (stored !== storageVersionOf(crd)) this.#violate(`${end.result.outcome}, and storedVersions is [${stored}]`);
    if (crd.metadata.annotations?.["ksvm.sigs.k8s.io/migrating"] !== undefined && !isForeign) {
      this.#violate("a freeze is left after an undisturbed run");
    }
  }

  #crdOf(kind: KindPlan): CustomResourceDefinition | undefined {
    return this.#cluster.etcd.get(`${CRD_PREFIX}${crdNameOf(kind)}`)?.object as CustomResourceDefinition | undefined;
  }

  #act(action: Action): void {
    this.#tell("world", JSON.stringify(action));
    const cluster = this.#cluster;
    const kind = "kind" in action ? this.#plan.kinds[action.kind] : undefined;
    const program = "program" in action ? this.#programs[action.program] : undefined;
    const node = "server" in action ? cluster.nodeAt(action.server) : undefined;
    const user = this.#user;
    switch (action.do) {
      case "flip":
        if (kind)
          void user
            .flip(kind, action.to)
            .then((answer) => this.#tell("user", `flip: ${answer?.status ?? "nobody answers"}`));
        break;
      case "create":
      case "update":
      case "delete":
        if (kind) void user[action.do](kind, oneOf(this.#random, kind.versions), action.object);
        break;
      case "recreateCrd":
        if (kind) void this.#recreate(kind);
        break;
      case "annotate":
        if (kind) void user.annotate(kind, action.how);
        break;
      case "foreignPrune":
        break;
      case "editLease":
        if (kind) void user.editLease(kind, action.how);
        break;
      case "crash":
        program?.process.crash();
        break;
      case "start":
        program?.process.crash();
        this.#start(action.program);
        break;
      case "pause":
      case "suspend":
        program?.process[action.do]();
        this.#schedule.in(action.ms, () => program?.process.wake());
        break;
      case "jump":
        program?.process.jump(action.ms);
        break;
      case "crashServer":
        cluster.crash(action.server, action.ms);
        break;
      case "hangServer":
        node?.standStill(action.ms, "pause");
        break;
      case "suspendServer":
        node?.standStill(action.ms, "suspend");
        break;
      case "jumpServer":
        node?.process.jump(action.ms);
        break;
      case "lag":
        if (node) node.lags[action.of] = action.ms;
        break;
      case "slow":
        if (node) {
          node.slownessMs = action.holdMs;
          this.#schedule.in(action.ms, () => (node.slownessMs = 0));
        }
        break;
      case "joinServer":
        cluster.join();
        break;
      case "disturb":
        this.#disturb(action);
        break;
      case "deny":
        if (kind) void this.#deny(kind, action);
        break;
      case "restore":
        this.#restore(action.ageMs);
        break;
      case "compact":
        if (cluster.etcd.revision > cluster.etcd.compactedRevision) cluster.etcd.compact(cluster.etcd.revision);
        break;
    }
  }

  /** A webhook denies half of all objects, by their names, with a status of its own. */
  async #deny(kind: KindPlan, { ms, reason, status }: Extract<Action, { do: "deny" }>): Promise<void> {
    const name = `deny-${this.#starts++}`;
    const url = `https://${name}.sim/`;
    let isOver = false;
    this.#cluster.webhooks.set(url, async (body) => {
      const { request } = JSON.parse(body) as { request: { uid: string; name: string } };
      const allowed = isOver || request.name.length % 2 === 0;
      const message = `${kind.plural}.sim.example.com "${request.name}" not found`;
      const response = { uid: request.uid, allowed, ...(allowed ? {} : { status: { code: status, reason, message } }) };
      return {
        status: 200,
        body: JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response }),
      };
    });
    await this.#user.installWebhook(name, kind, url);
    await this.#schedule.wait(ms);
    // A restore may bring its configuration back: then it lets everything pass.
    isOver = true;
    for (let tries = 0; tries < 100; tries++) {
      const answer = await this.#user.removeWebhook(name);
      if (answer?.status === 200 || answer?.status === 404) break;
      await this.#schedule.wait(1_000);
    }
  }

  /** etcd is restored from a backup, as administrators do it: with all API servers down. */
  #restore(ageMs: number): void {
    const snapshot = this.#snapshots.findLast(({ at }) => at <= this.#schedule.now - ageMs)?.snapshot;
    if (snapshot === undefined) return;
    this.#cluster.restore(snapshot);
  }

  async #recreate(kind: KindPlan): Promise<void> {
    await this.#user.deleteCrd(kind);
    await this.#schedule.wait(500);
    await this.#user.createCrd(kind, oneOf(this.#random, kind.versions));
  }

  #disturb({ how, ms, share }: Extract<Action, { do: "disturb" }>): void {
    const before = this.#cluster.interference;
    this.#cluster.interference = (user) => {
      const earlier = before(user);
      if (earlier !== undefined) return earlier;
      if (!user.startsWith("ksvm") || !oneIn(this.#random, 1 / share)) return undefined;
      switch (how) {
        case "reset":
        case "resetAfter":
          return "reset";
        case "lost":
          return "lost";
        case "html":
          return { status: oneOf(this.#random, [403, 404, 502, 503]), html: true };
        default:
          return { status: Number(how) };
      }
    };
    this.#schedule.in(ms, () => (this.#cluster.interference = before));
  }

  #violate(violation: string): void {
    this.#tell("CHECK", violation);
    this.#violations.push(violation);
  }

  #tell(who: string, what: string): void {
    const at = ((this.#schedule.now - this.#startedAt) / 1_000).toFixed(3);
    this.#trace.push(`${at.padStart(10)} r${this.#cluster.etcd.revision} ${who}: ${what}`);
  }
}

function isByKsvm(): boolean {
  return currentWriter()?.startsWith("ksvm") === true;
}

/** An owner that a user wrote, of a run that there never was. */
function isMadeUp(crd: CustomResourceDefinition): boolean {
  return crd.metadata.annotations?.[OWNER_ANNOTATION]?.includes("nobody") === true;
}

function endText(end: ProgramEnd | undefined): string {
  switch (end?.kind) {
    case "result":
      return end.result.outcome;
    case "error":
      return messageOf(end.error);
    case "crash":
      return "crash";
    default:
      return "still running";
  }
}
