import tap from "tap";
import { HEARTBEAT_LIMIT_MS, type StorageState, UNKNOWN_HASH } from "../../src/api/migration.ts";
import { storedEncodingOf } from "../../src/resources/storage-states.ts";

const NOW = Date.parse("2026-01-01T12:00:00Z");

function stateWith(current: string, persisted: readonly string[], ageMs = 60_000): StorageState {
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageState",
    metadata: { name: "deployments.apps", uid: "u", resourceVersion: "1" },
    spec: { resource: { group: "apps", resource: "deployments" } },
    status: {
      currentStorageVersionHash: current,
      persistedStorageVersionHashes: persisted,
      lastHeartbeatTime: new Date(NOW - ageMs).toISOString(),
    },
  };
}

const judge = { hash: "now", now: NOW, heartbeatLimitMs: HEARTBEAT_LIMIT_MS };

for (const [name, state, expected] of [
  ["current where everything is persisted in it", stateWith("now", ["now"]), "current"],
  ["stale where something else is persisted", stateWith("now", ["before", "now"]), "stale"],
  ["stale where nobody knows what is persisted", stateWith("now", [UNKNOWN_HASH]), "stale"],
  ["unknown without a StorageState", undefined, "unknown"],
  ["unknown where the trigger stopped", stateWith("now", ["now"], HEARTBEAT_LIMIT_MS + 1_000), "unknown"],
  ["unknown where the heartbeat lies ahead", stateWith("now", ["now"], -HEARTBEAT_LIMIT_MS - 1_000), "unknown"],
  ["unknown where the API servers disagree", stateWith(UNKNOWN_HASH, [UNKNOWN_HASH]), "unknown"],
  ["unknown where discovery shows another hash", stateWith("before", ["before"]), "unknown"],
] as const) {
  await tap.test(`storedEncodingOf() is ${name}`, (t) => {
    const { state: found, reason } = storedEncodingOf(state, judge);
    t.equal(found, expected);
    t.equal(reason !== undefined, expected === "unknown", "with the reason");
    t.end();
  });
}

await tap.test("storedEncodingOf() believes no StorageState that has no heartbeat", (t) => {
  const { status, ...rest } = stateWith("now", ["now"]);
  const { lastHeartbeatTime: _, ...without } = status ?? {};
  t.equal(storedEncodingOf({ ...rest, status: without }, judge).state, "unknown");
  t.end();
});
