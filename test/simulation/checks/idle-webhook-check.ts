import { isByKsvm, type World } from "../world/world.ts";
import type { Check } from "./check.ts";

/** What was done last is told to all in this time, in milliseconds. */
const QUIET_MS = 90_000;
/** How long the replicas are watched, in milliseconds. */
const IDLE_MS = 600_000;
/** Requests of each replica in a minute: it looks at the Secret, the configuration, and the clock of the API server. */
const IDLE_REQUESTS = 6;

/** Replicas of the webhook that have nothing to do ask little, and write nothing: two that undo each other's writes never end. */
export class IdleWebhookCheck implements Check {
  readonly name = "idle webhook";
  readonly #world: World;
  #written: string | undefined;
  #isIdle = false;

  private constructor(world: World) {
    this.#world = world;
    world.cluster.etcd.onRevision(({ key }) => {
      if (this.#isIdle && isByKsvm()) this.#written ??= key;
    });
  }

  /** @returns one for a world with the webhook, as long as its certificates outlive it. */
  static of(world: World): Check {
    const { lifetimes, programs } = world.plan;
    const isInstalled = programs.some(({ run }) => run === "webhook");
    return isInstalled && lifetimes === undefined ? new IdleWebhookCheck(world) : { name: "idle webhook" };
  }

  async finish(): Promise<void> {
    const { cluster, plan, schedule } = this.#world;
    const isBroken = (): boolean => this.#world.isBroken;
    await schedule.run(isBroken, QUIET_MS);
    const before = cluster.requests;
    this.#isIdle = true;
    await schedule.run(isBroken, IDLE_MS);
    if (isBroken()) return;
    const sent = cluster.requests - before;
    const replicas = plan.programs.filter(({ run }) => run === "webhook").length;
    const what = `${replicas} idle replicas of the webhook sent ${sent} requests in ${IDLE_MS / 1_000} s`;
    this.#world.tell(this.name, what);
    if (sent > (IDLE_REQUESTS * replicas * IDLE_MS) / 60_000) this.#world.violate(`load: ${what}`);
    if (this.#written !== undefined) this.#world.violate(`load: idle replicas of the webhook wrote ${this.#written}`);
  }
}
