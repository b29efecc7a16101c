import tap from "tap";
import { UNKNOWN_HASH } from "../../src/api/migration.ts";
import { serversLine, stateLine } from "../../src/plan/storage-lines.ts";

const [V1, BETA] = ["8aSe+NMegvE=", "AAAAAAAAAAA="];
const lastHeartbeatTime = "2026-01-01T00:00:00Z";
const resource = "deployments.apps";

function entry(apiServerID: string, encodingVersion: string) {
  return { apiServerID, encodingVersion };
}

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

await tap.test("serversLine() names what each API server stores where they disagree", async (t) => {
  const line = (...storageVersions: ReturnType<typeof entry>[]) =>
    serversLine({
      metadata: { name: "apps.deployments", uid: "u", resourceVersion: "1" },
      status: { storageVersions },
    });
  t.same(line(entry("a", "apps/v1"), entry("b", "apps/v1")), [], "negative control");
  t.same(line(entry("a", "apps/v1"), entry("b", "apps/v1beta1")), [
    {
      resource,
      servers: [
        { server: "a", version: "apps/v1" },
        { server: "b", version: "apps/v1beta1" },
      ],
    },
  ]);
});
