import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { storageVersionsOf } from "../../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, WEBHOOK_NAME } from "../../../src/api/names.ts";
import { policyGuardOf } from "../../../src/freeze/guard-install.ts";
import type { MigrationEvent } from "../../../src/migrator/events.ts";
import type { Counts } from "../../../src/migrator/rewrite/counts.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import type { ModelRequest } from "../model/types.ts";
import { currentRequestSince, currentServer, currentWriter } from "../world/api-server-node.ts";
import { crdNameOf, GROUP, objectsPrefixOf } from "../world/kinds.ts";
import type { SimProcess } from "../world/sim-process.ts";
import type { World } from "../world/world.ts";
import type { Check } from "./check.ts";
import { CrdRequests } from "./crd-requests.ts";
import { LeaseHolders } from "./lease-holders.ts";

/** A freeze that is on, as etcd tells of it. */
interface Freeze {
  /** The process or the user that put it on, or edited one of its annotations last. */
  readonly by: string;
  readonly at: number;
  /** Whether the run rests on it since: it has said that every API server denies a change of the storage version, or writes objects. */
  isProven: boolean;
  /** The revision of etcd when the run rested on it first: objects that were written before have to be written by the run. */
  provenAt: number;
  /** When that was. A run of a controller tells nobody of its steps before. */
  restsSince: number;
  /** When it said that all API servers have converged, before it has written an object; the distant past where it does not say so, or writes. */
  settlesSince: number;
  /** When others last wrote or deleted an object that the run had to write. */
  doneByOthersAt: number;
}

/** What guards the freezes of all CRDs, and what guards that of one. */
const WEBHOOK = `/registry/validatingwebhookconfigurations/${WEBHOOK_NAME}`;
const POLICIES = ["/registry/validatingadmissionpolicies/", "/registry/validatingadmissionpolicybindings/"];
/** As late as an API server may be with policies and webhooks: a guard that others wrote so shortly before the freeze may have proven it. */
const LATE_MS = 60_000;
/**
 * What a run that does not get on may keep its freeze for after that, to lift it. The longest that one did in 1,200 worlds was 85 seconds; what
 * it waits for of proof and convergence counts before that.
 */
const SLACK_MS = 120_000;
const LOOK_EVERY_MS = 60_000;
/** A shorter stand of a process does not matter. */
const STAND_MS = 1_000;
/** What a run tells that has got further, beside the objects that are done. */
const STEPS: ReadonlySet<MigrationEvent["type"]> = new Set([
  "frozen",
  "resumed",
  "proven",
  "converged",
  "pruned",
  "startingAgain",
]);

/**
 * What a freeze is for, and what it must not become. While a run rests on its freeze the storage version stays, unless others
 * write what guards it. One that others put on is not touched, whichever owner ksvm reads from it. And a run that does not get on
 * takes its freeze off after `--max-freeze-idle`, whatever it is that holds it up; but not as long as it stands still, or requests
 * for CRDs fail, its own or those of the run that came after it, or as its own have no answer yet.
 */
export class FrozenStorageCheck implements Check {
  readonly name = "frozen storage";
  readonly #world: World;
  readonly #writer: () => string | undefined;
  readonly #server: typeof currentServer;
  readonly #since: typeof currentRequestSince;
  readonly #freezes = new Map<string, Freeze>();
  /** When others last wrote what guards freezes, by the names of CRDs, and by that of the webhook for all of them. */
  readonly #guardsWrittenAt = new Map<string, number>();
  /** When a program told last that it gets on, and when it last wrote an object of a CRD, by its name and that of the CRD. */
  readonly #progress = new Map<string, number>();
  /** How many objects were done, and did not fail, when it told last. */
  readonly #done = new Map<string, number>();
  readonly #crdRequests: CrdRequests;
  readonly #holders: LeaseHolders;

  /**
   * @param writer as `FreezesCheck` has it
   * @param server the API server that writes for it
   * @param since when that one got the request
   */
  constructor(
    world: World,
    writer: () => string | undefined = currentWriter,
    [server, since] = [currentServer, currentRequestSince] as const,
  ) {
    this.#world = world;
    this.#since = since;
    this.#writer = writer;
    this.#server = server;
    this.#crdRequests = new CrdRequests(world);
    this.#holders = new LeaseHolders(world, writer);
    const { etcd } = world.cluster;
    const crds = world.plan.kinds.map((kind) => ({ name: crdNameOf(kind), prefix: objectsPrefixOf(kind) }));
    const guards = new Map([[WEBHOOK, WEBHOOK], ...crds.flatMap(({ name }) => policiesOf(name))]);
    etcd.onRevision((entry) => this.#written(entry, crds, guards));
    etcd.onRestore(() => this.#freezes.clear());
    world.witnesses.push(({ name }) => ({
      told: (event) => this.#told(name, event),
      ended: () => undefined,
    }));
    world.cluster.onRequest((request) => this.#sent(request));
    this.#lookAgain();
  }

  /** A run of a controller tells nobody that it has its proof; that it writes objects says so. */
  #sent({ method, path, query, user }: ModelRequest): void {
    if (method !== "PATCH" || query.has("dryRun")) return;
    const kind = this.#world.plan.kinds.find(
      (one) => path.startsWith(`/apis/${GROUP}/`) && path.includes(`/${one.plural}/`),
    );
    const freeze = kind === undefined ? undefined : this.#freezes.get(crdNameOf(kind));
    if (freeze?.by !== user) return;
    this.#proven(freeze);
    freeze.settlesSince = Number.NEGATIVE_INFINITY;
  }

  #told(program: string, event: MigrationEvent): void {
    const isFurther = event.type === "progress" ? this.#isFurther(program, event.counts) : STEPS.has(event.type);
    // What it waits for late writes is no time without progress.
    const settlesMs = event.type === "settling" ? event.remainingMs : 0;
    if (isFurther || settlesMs > 0) this.#progress.set(program, this.#world.schedule.now + settlesMs);
    if (event.type !== "converged") return;
    for (const freeze of this.#freezes.values()) {
      if (freeze.by !== program) continue;
      if (!freeze.isProven) freeze.settlesSince = this.#world.schedule.now;
      this.#proven(freeze);
    }
  }

  #proven(freeze: Freeze): void {
    if (freeze.isProven) return;
    freeze.isProven = true;
    freeze.provenAt = this.#world.cluster.etcd.revision;
    freeze.restsSince = this.#world.schedule.now;
  }

  /** As for a run itself, an object that failed is none that was done. */
  #isFurther(program: string, { done, failed }: Readonly<Counts>): boolean {
    const isFurther = done - failed !== this.#done.get(program);
    this.#done.set(program, done - failed);
    return isFurther;
  }

  /** @param guards what is guarded by the object at a key */
  #written(
    entry: EtcdEntry,
    crds: readonly { readonly name: string; readonly prefix: string }[],
    guards: ReadonlyMap<string, string>,
  ): void {
    if (entry.key.startsWith(CRD_PREFIX)) {
      this.#crdWritten(entry.key.slice(CRD_PREFIX.length), entry);
      return;
    }
    const name = crds.find(({ prefix }) => entry.key.startsWith(prefix))?.name;
    const guarded = guards.get(entry.key);
    if (name !== undefined) this.#objectWritten(name, entry);
    else if (guarded !== undefined && !this.#isByKsvm) this.#guardsWrittenAt.set(guarded, this.#world.schedule.now);
  }

  #objectWritten(crd: string, { before }: EtcdEntry): void {
    const { now } = this.#world.schedule;
    if (this.#isByKsvm) {
      this.#progress.set(`${this.#writer()} ${crd}`, now);
      return;
    }
    const freeze = this.#freezes.get(crd);
    if (freeze === undefined || before === undefined || before.isDeleted) return;
    if (before.modRevision <= freeze.provenAt) freeze.doneByOthersAt = now;
  }

  #crdWritten(name: string, { object, before, isDeleted }: EtcdEntry): void {
    const after = object as unknown as CustomResourceDefinition;
    const earlier = before?.isDeleted === false ? (before.object as unknown as typeof after) : undefined;
    if (isDeleted || earlier?.metadata.uid !== after.metadata.uid) this.#freezes.delete(name);
    if (isDeleted || earlier === undefined) return;
    const freeze = this.#freezes.get(name);
    this.#judgeStorage(freeze, earlier, after);
    if (marksOf(earlier) === marksOf(after)) return;
    const isSame = valueOf(earlier) === valueOf(after);
    if (!isSame) this.#judgeFreeze(name, freeze);
    const isOthers = freeze !== undefined && !freeze.by.startsWith("ksvm");
    // A run that ends takes its owner off a freeze that another client put in the place of its own.
    if (valueOf(after) === undefined) this.#freezes.delete(name);
    else if (!isSame || !isOthers || !this.#isByKsvm) this.#freezes.set(name, this.#begun());
  }

  #begun(): Freeze {
    return {
      by: this.#writer() ?? "an API server",
      at: this.#world.schedule.now,
      isProven: false,
      provenAt: Number.POSITIVE_INFINITY,
      restsSince: Number.NEGATIVE_INFINITY,
      settlesSince: Number.NEGATIVE_INFINITY,
      doneByOthersAt: Number.NEGATIVE_INFINITY,
    };
  }

  /** When others last wrote what guards the freeze of a CRD. */
  #guardWrittenAt(crd: string): number {
    return Math.max(...[WEBHOOK, crd].map((guarded) => this.#guardsWrittenAt.get(guarded) ?? Number.NEGATIVE_INFINITY));
  }

  #judgeStorage(freeze: Freeze | undefined, before: CustomResourceDefinition, after: CustomResourceDefinition): void {
    const [from, to] = [storageVersionsOf(before).join(), storageVersionsOf(after).join()];
    if (from === to || freeze?.isProven !== true) return;
    if (this.#guardWrittenAt(after.metadata.name) > freeze.at - LATE_MS) return;
    // Admission passed it before the freeze was proven, and etcd was slow: the run waits for such writes before its first list.
    if ((this.#since() ?? Number.POSITIVE_INFINITY) < freeze.settlesSince) return;
    // It was not asked whether it denies the change (docs/decisions/0010-a-stamp-is-no-proof.md).
    if (this.#server()?.isLeavingUnseen(freeze.by) === true) return;
    const what = `changed the storage version of ${after.metadata.name} from ${from} to ${to}`;
    this.#violate(`${this.#writer()} ${what} while ${freeze.by} rests on its freeze`);
  }

  #judgeFreeze(name: string, freeze: Freeze | undefined): void {
    if (!this.#isByKsvm || freeze === undefined || freeze.by.startsWith("ksvm")) return;
    this.#violate(`${this.#writer()} took off or changed the freeze that ${freeze.by} put on ${name}`);
  }

  #lookAgain(): void {
    const { schedule } = this.#world;
    schedule.in(LOOK_EVERY_MS, () => {
      this.#judgeIdle(schedule.now);
      this.#lookAgain();
    });
  }

  #judgeIdle(now: number): void {
    const { programs, settings } = this.#world;
    const allowedMs = settings.options.maxFreezeIdleMs + SLACK_MS;
    for (const [name, { at, by, doneByOthersAt, restsSince }] of this.#freezes) {
      const process = programs.find(
        (program) => program?.process.name === by && program.endText === undefined,
      )?.process;
      if (process === undefined || this.#isHeldUp(process)) continue;
      const failedAt = Math.max(...this.#liftersOf(name, by, now).map((one) => this.#crdRequests.failedAt(one)));
      // What users write or delete a run gets done: a `ksvm migrate` says so, and a controller does not.
      const othersAt = this.#done.has(by) ? 0 : doneByOthersAt;
      const progressAt = [by, `${by} ${name}`].map((one) => this.#progress.get(one) ?? 0);
      const since = Math.max(at, restsSince, process.wokeAfter(STAND_MS), failedAt, othersAt, ...progressAt);
      if (now - since > allowedMs) this.#violate(`${by} keeps that of ${name}, and does not get on`);
    }
  }

  /** It cannot take a freeze off at this moment. */
  #isHeldUp({ isPaused, name }: SimProcess): boolean {
    return isPaused || this.#crdRequests.areUnderWay(name);
  }

  /** Who has to take a freeze off: who put it on, and the next leader, whose run has the Lease of the CRD. */
  #liftersOf(crd: string, by: string, now: number): readonly string[] {
    const names = this.#world.programs.flatMap((program) => (program === undefined ? [] : [program.process.name]));
    return [by, ...names.filter((name) => this.#holders.isHeldBy(name, crd, now))];
  }

  get #isByKsvm(): boolean {
    return this.#writer()?.startsWith("ksvm") === true;
  }

  #violate(text: string): void {
    this.#world.violate(`freeze: ${text}`);
  }
}

/** The keys of the policies that guard a CRD, with its name. */
function policiesOf(crd: string): readonly (readonly [key: string, crd: string])[] {
  const { name } = policyGuardOf(crd);
  return POLICIES.map((prefix) => [`${prefix}${name}`, crd] as const);
}

function valueOf({ metadata: { annotations } }: CustomResourceDefinition): string | undefined {
  return annotations?.[MIGRATING_ANNOTATION];
}

function marksOf(crd: CustomResourceDefinition): string {
  return JSON.stringify([valueOf(crd), crd.metadata.annotations?.[OWNER_ANNOTATION]]);
}
