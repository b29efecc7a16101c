import { policyGuardOf } from "../../../src/freeze/guard-install.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import { currentWriter } from "../world/api-server-node.ts";
import { crdNameOf } from "../world/kinds.ts";
import { isByKsvm, type World } from "../world/world.ts";
import type { Check } from "./check.ts";
import { LeaseHolders } from "./lease-holders.ts";
import { Writers } from "./writers.ts";

/** A policy or a binding that guards one CRD. */
interface Guard {
  /** Who created it. */
  readonly creator: string;
  /** The process of ksvm that wrote it last; `undefined` where none did. */
  readonly writer: string | undefined;
  readonly at: number;
}

const PREFIXES = ["/registry/validatingadmissionpolicies/", "/registry/validatingadmissionpolicybindings/"];

/**
 * The policies and bindings of runs at every revision: ksvm writes and deletes none of others, and none of a run that lives, by
 * another run. One that
 * ends takes its own away, or says that it could not.
 */
export class PoliciesCheck implements Check {
  readonly name = "policies";
  readonly #world: World;
  readonly #leases: LeaseHolders;
  readonly #writers: Writers;
  readonly #guards = new Map<string, Guard>();
  /** CRDs by the keys of their policies and bindings. */
  readonly #crds = new Map<string, string>();
  /** Who wrote each object of them: a restore brings objects back. */
  readonly #guardOf = new WeakMap<object, Guard>();
  readonly #failedCleanups = new Set<string>();

  constructor(world: World) {
    this.#world = world;
    this.#leases = new LeaseHolders(world);
    this.#writers = new Writers(world, currentWriter);
    for (const kind of world.plan.kinds) {
      for (const prefix of PREFIXES) this.#crds.set(`${prefix}${policyGuardOf(crdNameOf(kind)).name}`, crdNameOf(kind));
    }
    const { etcd } = world.cluster;
    etcd.onRevision((entry) => this.#crds.has(entry.key) && this.#written(entry));
    etcd.onRestore(() => {
      this.#guards.clear();
      for (const key of this.#crds.keys()) {
        const guard = this.#guardOf.get(etcd.get(key)?.object ?? {});
        if (guard !== undefined) this.#guards.set(key, guard);
      }
    });
    world.witnesses.push(({ name }) => ({
      told: (event) => {
        if (event.type === "warning" && LEFT.test(event.message)) this.#failedCleanups.add(name);
      },
      ended: (_, how) => this.#ended(name, how),
    }));
  }

  #written(entry: EtcdEntry): void {
    const { key, isDeleted, before, object } = entry;
    const writer = currentWriter() ?? "an API server";
    const crd = this.#crds.get(key) ?? "";
    const guard = this.#guards.get(key);
    const isJudged = this.#writers.of(entry) !== undefined;
    if (isJudged && guard !== undefined && before?.isDeleted === false) this.#judge(key, guard, { writer, crd });
    if (isDeleted) {
      this.#guards.delete(key);
      return;
    }
    const isNew = before === undefined || before.isDeleted;
    const creator = isNew ? writer : (guard?.creator ?? "unknown");
    const now = isByKsvm() ? { creator, writer, at: this.#world.schedule.now } : { ...NOBODY, ...guard, creator };
    this.#guards.set(key, now);
    this.#guardOf.set(object, now);
  }

  #judge(key: string, { at, creator, writer: owner }: Guard, { crd, writer }: { crd: string; writer: string }): void {
    if (owner === undefined && creator !== "unknown") {
      this.#violate(`"${writer}" wrote or deleted ${key}, which ${creator} created`);
    } else if (owner !== undefined && owner !== writer && this.#leases.isHeldBy(owner, crd, at)) {
      this.#violate(`"${writer}" wrote or deleted ${key} of ${owner}, which holds the Lease`);
    }
  }

  #ended(program: string, how: string): void {
    // What it had deleted before a restore is there again.
    if (
      how === "crash" ||
      this.#writers.wroteBeforeRestore(program) ||
      this.#failedCleanups.has(program) ||
      how.includes("Cannot remove")
    )
      return;
    for (const [key, { writer }] of this.#guards) {
      if (writer !== program || this.#leases.isTakenFrom(program, this.#crds.get(key) ?? "")) continue;
      this.#violate(`${program} ended and left ${key}: ${how}`);
    }
  }

  #violate(text: string): void {
    this.#world.violate(`policy: ${text}`);
  }
}

/** It gave up; "Cannot remove … yet" says that it tries again. */
const LEFT = /^Cannot remove \S+ "[^"]+": /;
const NOBODY = { writer: undefined, at: 0 };
