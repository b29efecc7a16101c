import { UNKNOWN_HASH } from "../../../src/api/migration.ts";
import { CRD_ANNOTATION } from "../../../src/api/names.ts";
import { objectPath, STORAGE_STATES } from "../../../src/kube/resources.ts";
import { resourceOf } from "../world/kinds.ts";
import { oneOf } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";
import { hasController, kindOf } from "./choices.ts";

const MERGE = "application/merge-patch+json";
const STATUSES = {
  unknown: { persistedStorageVersionHashes: [UNKNOWN_HASH] },
  empty: { persistedStorageVersionHashes: [] },
  old: { lastHeartbeatTime: "2020-01-01T00:00:00Z" },
  ahead: { lastHeartbeatTime: "2126-01-01T00:00:00Z" },
  disagree: { currentStorageVersionHash: UNKNOWN_HASH },
};

/** A user edits or deletes the StorageState of a kind. */
export const editStorageState = sort<{
  readonly kind: number;
  readonly how: keyof typeof STATUSES | "delete" | "record";
}>({
  name: "editStorageState",
  suits: hasController,
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    how: oneOf(random, ["delete", "delete", "record", "unknown", "empty", "old", "ahead", "disagree"]),
  }),
  async play(world, { kind, how }) {
    const { user } = world;
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const path = objectPath(STORAGE_STATES, { name: resourceOf(plan) });
    if (how === "delete") await user.send("DELETE", path);
    else if (how === "record")
      await user.send("PATCH", path, { metadata: { annotations: { [CRD_ANNOTATION]: null } } }, MERGE);
    else await user.send("PATCH", `${path}/status`, { status: STATUSES[how] }, MERGE);
  },
});
