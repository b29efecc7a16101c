import tap from "tap";
import { UNKNOWN_HASH } from "../../src/api/migration.ts";
import { stateLine } from "../../src/plan/storage-lines.ts";

const [V1, BETA] = ["8aSe+NMegvE=", "AAAAAAAAAAA="];
const lastHeartbeatTime = "2026-01-01T00:00:00Z";
const resource = "deployments.apps";

function shown(current: string | undefined, persisted: readonly (string | undefined)[]) {
  const hashes = persisted.map((hash) => hash ?? "");
  const status = { currentStorageVersionHash: current ?? "", persistedStorageVersionHashes: hashes, lastHeartbeatTime };
  return stateLine(resource, { status });
}

await tap.test("stateLine() shows what a StorageState does not show to be stored alike", async (t) => {
  t.same(shown(V1, [V1]), [], "negative control");
  t.same(stateLine(resource, {}), [], "one that was never filled says nothing");
  const common = { resource, lookedAt: lastHeartbeatTime };
  t.same(shown(V1, [BETA, V1]), [
    { ...common, storedVersions: [`hash ${BETA}`, `hash ${V1}`], storageVersion: `hash ${V1}` },
  ]);
  t.same(shown(UNKNOWN_HASH, [V1]), [{ ...common, storedVersions: [`hash ${V1}`], storageVersion: "unknown" }]);
  t.same(shown(V1, [UNKNOWN_HASH]), [{ ...common, storedVersions: ["unknown"], storageVersion: `hash ${V1}` }]);
});
