import type { Access } from "../kube/access.ts";
import { CRDS, LEASES, MIGRATIONS, STORAGE_STATES, STORAGE_VERSIONS } from "../kube/resources.ts";
import { isCustom, resourceOfName, type RoleObject, roleOf, rulesOf, SEE_IN_TREE } from "../migrator/run-roles.ts";

/** What RBAC takes for any resource of any group. */
const EVERY_RESOURCE = "*.*";

/**
 * What `ksvm report` of these resources needs: it writes nothing. Discovery and /version are open to every authenticated user.
 *
 * @param names `plural.group` each; none for every resource, whose holder can read every object of the cluster
 */
export function roleForReport(names: readonly string[], name: string): RoleObject {
  const resources = names.length === 0 ? [EVERY_RESOURCE] : names;
  const objects = resources.map(resourceOfName).flatMap((resource): readonly Access[] => [
    { verb: "list", resource },
    // Reading one in each version shows whether its conversion webhook answers.
    ...(resource.group === "" ? [] : [{ verb: "get", resource }]),
  ]);
  const named = names.filter(isCustom).map((crdName): Access => ({ verb: "get", resource: CRDS, name: crdName }));
  const seen = [CRDS, MIGRATIONS, STORAGE_STATES, STORAGE_VERSIONS, LEASES];
  const lists = seen.map((resource): Access => ({ verb: "list", resource }));
  return roleOf({ name }, rulesOf([...objects, ...named, ...lists, SEE_IN_TREE]));
}
