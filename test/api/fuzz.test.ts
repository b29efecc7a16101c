import tap from "tap";

import {
  MIGRATION_GROUP,
  type MigrationStatus,
  resourceNameOf,
  stateOf,
  type StorageVersionMigration,
  UNKNOWN_HASH,
} from "../../src/api/migration.ts";
import { CRD_ANNOTATION, HASH_ANNOTATION } from "../../src/api/names.ts";
import { parseMigration } from "../../src/api/parse-migration.ts";
import { parseStorageState } from "../../src/api/parse-storage-state.ts";
import { describeChanges, renderStatus } from "../../src/cli/render/render-status.ts";
import { oneLine, printable } from "../../src/cli/render/printable.ts";
import { conditionsIn } from "../../src/controller/migration-status.ts";
import { parseOwner } from "../../src/freeze/freeze.ts";
import { objectPath } from "../../src/kube/objects.ts";
import { migrationLine } from "../../src/inventory/status.ts";
import { storedEncodingOf } from "../../src/resources/storage-states.ts";
import { parseCrdRecord } from "../../src/trigger/crd-facts.ts";
import { decide } from "../../src/trigger/decide.ts";
import { migrationFactsOf } from "../../src/trigger/migration-facts.ts";
import { stateFactsOf } from "../../src/trigger/state-facts.ts";
import { randomFrom } from "../chaos/random.ts";
import { TEST_SEED } from "../seed.ts";
import { builtIn, NOW } from "../trigger/situation.ts";
import { eachMutation, mutated } from "./json-mutations.ts";

const ROUNDS = 500;
/** What a status has beside migrations and freezes. */
const NOTHING_ELSE = { controller: { state: "none" }, runs: [], storage: [], unknown: [] } as const;
const NOW_TEXT = new Date(NOW).toISOString();
const UNPRINTABLE = /[\p{Cc}\u202A-\u202E\u2066-\u2069]/u;

const METADATA = {
  name: "widgets.example.com-x7k2p",
  uid: "0b1c2d3e",
  resourceVersion: "4711",
  generation: 2,
  creationTimestamp: "2026-01-01T00:00:00Z",
  labels: { "ksvm.sigs.k8s.io/created-by": "trigger" },
  annotations: { [HASH_ANNOTATION]: "hash", "ksvm.sigs.k8s.io/attempt": "2", "ksvm.sigs.k8s.io/priority": "low" },
  ownerReferences: [{ apiVersion: "v1", kind: "Namespace", name: "a", uid: "b" }],
};
const STATUS: MigrationStatus = {
  conditions: [
    {
      type: "Running",
      status: "True",
      lastUpdateTime: "2026-01-01T00:00:00Z",
      reason: "WaitingForOthers",
      message: "m",
    },
    { type: "Waiting", status: "False" },
  ],
  counts: { migrated: 1, skipped: 2, failed: 3, remaining: 4 },
  progress: "6/10",
  failures: [{ namespace: "a", name: "b", reason: "c" }],
  startTime: "2026-01-01T00:00:00Z",
  completionTime: "2026-01-01T00:00:00Z",
};
const MIGRATION: StorageVersionMigration = {
  apiVersion: "migration.k8s.io/v1alpha1",
  kind: "StorageVersionMigration",
  metadata: METADATA,
  spec: {
    resource: { group: "example.com", version: "v1", resource: "widgets" },
    continueToken: "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
    suspend: false,
  },
  status: STATUS,
};
const STATE = {
  apiVersion: "migration.k8s.io/v1alpha1",
  kind: "StorageState",
  metadata: { ...METADATA, name: "deployments.apps", annotations: { [CRD_ANNOTATION]: "uid/3/v1,v2" } },
  spec: { resource: { group: "apps", resource: "deployments" } },
  status: {
    persistedStorageVersionHashes: ["old", "new"],
    currentStorageVersionHash: "new",
    lastHeartbeatTime: new Date(NOW).toISOString(),
  },
};

/** As an API server would send it. */
function sent(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value) ?? "null") as unknown;
}

function* bodiesOf(document: unknown): Generator {
  yield* eachMutation(document);
  const random = randomFrom(TEST_SEED);
  for (let round = 0; round < ROUNDS; round++) {
    yield mutated(random, document);
  }
}

function fail(what: string, body: unknown): never {
  throw new Error(`${what}, TEST_SEED=${TEST_SEED}: ${JSON.stringify(body).slice(0, 2_000)}`);
}

function assertPrintable(text: string, body: unknown): void {
  if (UNPRINTABLE.test(text.replaceAll("\n", ""))) {
    fail("a terminal acts on the text", body);
  }
}

/** A path with exactly the segments that it was made of. */
function assertPath(path: string, segments: number, body: unknown): void {
  const parts = path.split("/");
  const isSafe =
    parts.length === segments && parts.every((part) => part !== "." && part !== "..") && /^[!-~]+$/.test(path);
  if (!isSafe) {
    fail(`the path ${path} is another one`, body);
  }
}

/** Everything that reads a migration, one after the other. */
function readEverywhere(migration: StorageVersionMigration, body: unknown): void {
  const { metadata, spec, status } = migration;
  const version = { group: MIGRATION_GROUP, version: "v1alpha1" };
  assertPath(objectPath({ ...version, plural: "storageversionmigrations" }, metadata), 6, body);
  assertPath(objectPath({ ...version, plural: "storagestates" }, { name: resourceNameOf(spec.resource) }), 6, body);
  const conditions = conditionsIn({ type: "Running" }, status?.conditions ?? [], NOW_TEXT);
  if (conditions.filter(({ type }) => type === "Running").length !== 1) {
    fail("not exactly one condition says what it does", body);
  }
  const observed = { ...builtIn("hash"), name: resourceNameOf(spec.resource) };
  const facts = migrationFactsOf(migration);
  decide({ observed, state: undefined, migrations: [facts], now: NOW, observedAt: NOW });
  assertShown(migration, body);
}

function assertShown(migration: StorageVersionMigration, body: unknown): void {
  const status = { ...NOTHING_ELSE, migrations: [migrationLine(migration)], freezes: [] };
  assertPrintable(printable(renderStatus(status, "table", NOW)), body);
  assertPrintable(printable(renderStatus(status, "json", NOW)), body);
  assertPrintable(printable(renderStatus(status, "yaml", NOW)), body);
  describeChanges({ ...NOTHING_ELSE, migrations: [], freezes: [] }, status).forEach((line) =>
    assertPrintable(oneLine(line), body),
  );
  assertPrintable(`${migration.status?.progress ?? ""}${stateOf(migration)}`, body);
}

await tap.test(
  "parseMigration() reads any body or names what is wrong with it, and every reader takes what it returns",
  (t) => {
    let read = 0;
    let unread = 0;
    for (const body of bodiesOf(MIGRATION)) {
      const { ignored, object, unreadable } = parseMigration(sent(body));
      [...ignored, unreadable?.problem ?? "", unreadable?.name ?? ""].forEach((text) => assertPrintable(text, body));
      if (object === undefined) {
        unread++;
      } else {
        read++;
        readEverywhere(object, body);
      }
    }
    t.ok(read > 200 && unread > 200, `${read} were read, ${unread} were not`);
    t.equal(({} as { polluted?: unknown }).polluted, undefined, "nothing has reached a prototype");
    t.same(parseMigration(MIGRATION).object, MIGRATION, "a whole one is read as it is");
    t.same(parseMigration(MIGRATION).ignored, []);
    t.end();
  },
);

await tap.test(
  "parseStorageState() never leaves a hash out: a list that cannot be read as a whole counts as never written",
  (t) => {
    let [whole, lost] = [0, 0];
    for (const body of bodiesOf(STATE)) {
      const value = sent(body) as { status?: { persistedStorageVersionHashes?: unknown } } | null;
      const { object } = parseStorageState(value);
      if (object === undefined) {
        continue;
      }
      const facts = stateFactsOf(object);
      const raw = value?.status?.persistedStorageVersionHashes;
      if (facts.persisted.length > 0 ? JSON.stringify(facts.persisted) !== JSON.stringify(raw) : facts.current !== "") {
        fail("the list is another one", body);
      }
      const situation = { observed: builtIn("new"), state: facts, migrations: [], now: NOW, observedAt: NOW };
      const { status } = decide(situation);
      if (facts.current === "") {
        lost++;
        if (status?.persisted.includes(UNKNOWN_HASH) !== true) {
          fail("a hash may be missing, and nothing says so", body);
        }
      } else {
        whole++;
      }
      storedEncodingOf(object, { hash: "new", now: NOW, heartbeatLimitMs: 600_000 });
    }
    t.ok(whole > 100 && lost > 100, `${whole} were whole, ${lost} were not`);
    t.end();
  },
);

await tap.test("the owner that an annotation names is read or not believed, whatever it says", (t) => {
  const owner = { lease: "kube-system/ksvm-widgets.example.com", identity: "host/1", since: "2026-01-01T00:00:00Z" };
  t.same(parseOwner(JSON.stringify(owner)), owner);
  for (const body of bodiesOf(owner)) {
    const text = typeof body === "string" ? body : (JSON.stringify(sent(body)) ?? "");
    const read = parseOwner(text);
    if (read !== undefined) {
      const freezes = [{ crd: "widgets.example.com", owner: read.identity, lease: read.lease, since: read.since }];
      assertPrintable(renderStatus({ ...NOTHING_ELSE, migrations: [], freezes }, "table", NOW), body);
    }
    parseCrdRecord(text);
  }
  t.pass("nothing was believed");
  t.end();
});
