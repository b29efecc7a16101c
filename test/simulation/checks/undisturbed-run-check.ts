import { type CustomResourceDefinition, storageVersionOf, storedVersionsOf } from "../../../src/api/crd.ts";
import { MIGRATING_ANNOTATION } from "../../../src/api/names.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { KindPlan } from "../plan.ts";
import { hasReencryptions } from "../actions/choices.ts";
import { MigrateProgram } from "../programs/migrate-program.ts";
import { crdNameOf, prefixOf } from "../world/kinds.ts";
import type { World } from "../world/world.ts";
import type { Check } from "./check.ts";
import { deleteOwnPolicies, isForeign, isPutRight, liftOwnFreezes, putRight } from "./user-repairs.ts";

const POLICIES = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"].map(
  (resource) => `/registry/${resource}/ksvm-freeze.`,
);

/** What an undisturbed run may take, in milliseconds: four minutes was the most. */
const UNDISTURBED_MS = 900_000;

/**
 * What the disturbed runs left is for one that nobody disturbs: it migrates each CRD, and leaves no freeze; and where keys were rotated, another
 * one re-encrypts it.
 */
export class UndisturbedRunCheck implements Check {
  readonly name = "undisturbed run";
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  async finish(): Promise<void> {
    await putRight(this.#world, () => deleteOwnPolicies(this.#world));
    if (isPutRight(this.#world)) await putRight(this.#world, () => liftOwnFreezes(this.#world));
    await this.#deletionsEnd();
    for (const kind of this.#world.plan.kinds) {
      if (!this.#world.isBroken) await this.#migrate(kind);
      if (!this.#world.isBroken && hasReencryptions(this.#world.plan)) await this.#reencrypt(kind);
    }
  }

  /** An API server that follows CRDs late removes a CRD late that a user deleted. */
  async #deletionsEnd(): Promise<void> {
    const { cluster, isBroken, schedule } = this.#world;
    const isDeleting = (): boolean =>
      cluster.etcd.range(CRD_PREFIX).some(({ object }) => object.metadata.deletionTimestamp !== undefined);
    if (!isBroken && isDeleting()) await schedule.run(() => !isDeleting(), UNDISTURBED_MS);
  }

  async #reencrypt(kind: KindPlan): Promise<void> {
    const world = this.#world;
    const { cluster, schedule } = world;
    if (kind.isBuiltIn !== true && cluster.etcd.get(`${CRD_PREFIX}${crdNameOf(kind)}`) === undefined) return;
    const last = new MigrateProgram(world, { name: `ksvm-keys-${kind.plural}`, kind, force: true, reencrypts: true });
    const isOver = (): boolean => world.isBroken || last.isAtRest;
    if (!(await schedule.run(isOver, UNDISTURBED_MS))) world.violate("liveness: the last re-encryption does not end");
    const { endText } = last;
    if (!world.isBroken && endText !== "migrated") {
      if (this.#isHeldUp(kind, endText)) return;
      // No run has the API server list the storage version while another client keeps the CRD frozen.
      if (this.#isKeptUnlisted(kind) && endText?.includes(", without the storage version ") === true) return;
      world.violate(`liveness: an undisturbed re-encryption ends with ${endText}`);
    }
  }

  #isHeldUp(kind: KindPlan, endText: string | undefined): boolean {
    const { etcd } = this.#world.cluster;
    const crd = etcd.get(`${CRD_PREFIX}${crdNameOf(kind)}`)?.object as CustomResourceDefinition | undefined;
    const stored = etcd.range(prefixOf(kind)).map(({ object }) => object.apiVersion);
    return crd !== undefined && isHeldUpByGoneVersion(endText, crd, stored);
  }

  /** Another client took the storage version out of storedVersions, and another client has frozen the CRD. */
  #isKeptUnlisted(kind: KindPlan): boolean {
    const found = this.#world.cluster.etcd.get(`${CRD_PREFIX}${crdNameOf(kind)}`);
    const crd = found?.object as CustomResourceDefinition | undefined;
    return crd !== undefined && isForeign(crd) && !storedVersionsOf(crd).includes(storageVersionOf(crd));
  }

  async #migrate(kind: KindPlan): Promise<void> {
    const world = this.#world;
    const last = new MigrateProgram(world, { name: `ksvm-last-${kind.plural}`, kind, force: false });
    const isOver = (): boolean => world.isBroken || last.isAtRest;
    if (!(await world.schedule.run(isOver, UNDISTURBED_MS))) world.violate("liveness: the last run does not end");
    if (!world.isBroken) this.#judge(kind, last);
  }

  #judge(kind: KindPlan, { end, endText }: MigrateProgram): void {
    const world = this.#world;
    if (kind.isBuiltIn === true) {
      if (endText !== "migrated") world.violate(`liveness: an undisturbed run ends with ${endText}`);
      return;
    }
    const entry = world.cluster.etcd.get(`${CRD_PREFIX}${crdNameOf(kind)}`);
    if (entry === undefined) return;
    const crd = entry.object as unknown as CustomResourceDefinition;
    const guards = POLICIES.flatMap((prefix) => world.cluster.etcd.range(prefix));
    const isOthers = isForeign(crd);
    if (end?.kind !== "result") {
      if (this.#isHeldUp(kind, endText)) return;
      if (!isOthers || endText?.includes(": its storage version is frozen by ") !== true)
        world.violate(`liveness: an undisturbed run ends with ${endText}`);
      return;
    }
    const stored = storedVersionsOf(crd).join(" ");
    if (stored !== storageVersionOf(crd)) world.violate(`result: ${endText}, and storedVersions is [${stored}]`);
    if (crd.metadata.annotations?.[MIGRATING_ANNOTATION] !== undefined && !isOthers) {
      world.violate("freeze: one is left after an undisturbed run");
    }
    const [left] = guards;
    if (left !== undefined) world.violate(`freeze: ${left.key} is left after an undisturbed run`);
  }
}

/**
 * Whether a run says that an object cannot be read, and one is stored in a version that the CRD does not have any more. Another client pruned storedVersions
 * then, or ksvm did, which is for the check of storedVersions to find.
 */
export function isHeldUpByGoneVersion(
  endText: string | undefined,
  { spec: { group, versions } }: CustomResourceDefinition,
  stored: readonly string[],
): boolean {
  const named = /: request to convert CR from an invalid group\/version: (\S+)$/.exec(endText ?? "")?.[1] ?? "";
  return stored.includes(named) && !versions.some(({ name }) => `${group}/${name}` === named);
}
