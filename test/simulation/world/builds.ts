import { type Release, RELEASE_1_36 } from "../model/resource-table.ts";
import type { Encryption } from "../model/encryption-configuration.ts";
import type { Plan } from "../plan.ts";
import type { ServerBuild } from "./api-server-node.ts";
import { resourceOf } from "./kinds.ts";

/** The resources that a release before stored in another version, and in which. */
const OLD_STORAGE: Readonly<Record<string, string>> = {
  "deployments.apps": "v1beta2",
  "volumeattributesclasses.storage.k8s.io": "v1beta1",
};

const IN_TREE = { "storageversionmigrations.storagemigration.k8s.io": ["v1beta1"] };

const released = new Map<string, Release>();

/** The release of an API server: before or after its built-in resources moved to another storage version. */
export function releaseOf({ hasInTree = false }: Pick<Plan, "hasInTree">, which: "old" | "new"): Release {
  const name = `${which} ${hasInTree}`;
  let release = released.get(name);
  if (release === undefined) {
    const isOld = which === "old";
    release = {
      gitVersion: isOld ? "v1.35.3" : RELEASE_1_36.gitVersion,
      storageVersions: isOld ? OLD_STORAGE : {},
      servedVersions: hasInTree ? IN_TREE : {},
    };
    released.set(name, release);
  }
  return release;
}

/** What an API server encrypts the objects of a world with. Key 0 is plain text. */
export function encryptionOf({ kinds }: Pick<Plan, "kinds">, writes: number, reads: readonly number[]): Encryption {
  const resources = new Set(kinds.map(resourceOf));
  return { writes, reads: new Set(reads), resources };
}

/** How the API servers of a world are started. */
export function buildOf(plan: Plan): ServerBuild {
  const isOld = plan.kinds.some(({ isBuiltIn }) => isBuiltIn === true);
  return { release: releaseOf(plan, isOld ? "old" : "new"), encryption: encryptionOf(plan, 1, [0, 1]) };
}
