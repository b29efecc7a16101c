import tap from "tap";
import { storageVersionHash } from "../../src/apiservers/converge.ts";
import type { MigrationCondition } from "../../src/api/migration.ts";
import type { Crd } from "../../src/kube/objects.ts";
import { crdFactsOf, formatCrdRecord, parseCrdRecord } from "../../src/trigger/crd-facts.ts";
import { migrationFactsOf } from "../../src/trigger/migration-facts.ts";

const metadata = { name: "a", uid: "u", resourceVersion: "1" };

await tap.test("crdFactsOf() hashes the versions as discovery does", async (t) => {
  const version = { served: true, storage: false };
  const crd: Crd = {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: {
      ...metadata,
      name: "widgets.example.com",
      generation: 4,
      annotations: { "ksvm.sigs.k8s.io/trigger": "off" },
    },
    spec: {
      group: "example.com",
      scope: "Namespaced",
      names: { plural: "widgets", kind: "Widget" },
      versions: [
        { ...version, name: "v1alpha1" },
        { ...version, name: "v1", storage: true, served: false },
      ],
    },
    status: { storedVersions: ["v1alpha1", "v1"] },
  };
  const hashes = ["v1alpha1", "v1"].map((name) => storageVersionHash("example.com", name, "Widget"));
  t.same(crdFactsOf(crd), {
    name: "widgets.example.com",
    uid: "u",
    generation: 4,
    requestVersion: "v1alpha1",
    hash: hashes[1],
    storedVersions: ["v1alpha1", "v1"],
    storedHashes: hashes,
    isClean: false,
    isOptedOut: true,
  });
});

await tap.test("parseCrdRecord() reads what formatCrdRecord() wrote, and nothing else", async (t) => {
  for (const storedVersions of [["v1"], ["v1alpha1", "v1"], []]) {
    const record = { uid: "u-1", generation: 7, storedVersions };
    t.same(parseCrdRecord(formatCrdRecord(record)), record);
  }
  for (const text of [undefined, "", "u", "u/x/v1", "u/1", "a/b/1/v1"]) {
    t.equal(parseCrdRecord(text), undefined, String(text));
  }
});

await tap.test("migrationFactsOf() tells how far a migration is", async (t) => {
  const resource = { version: "v1", resource: "pods" };
  const factsOf = (conditions: readonly MigrationCondition[], annotations: Record<string, string> = {}) =>
    migrationFactsOf({
      apiVersion: "",
      kind: "",
      metadata: { ...metadata, annotations },
      spec: { resource },
      status: { conditions },
    });
  t.equal(factsOf([]).state, "Pending");
  t.equal(factsOf([{ type: "Running", status: "False" }]).state, "Pending");
  t.equal(factsOf([{ type: "Waiting", status: "True" }]).state, "Waiting");
  t.equal(factsOf([{ type: "Running", status: "True" }]).state, "Running");
  const ended: MigrationCondition = {
    type: "Failed",
    status: "True",
    reason: "FreezeLifted",
    lastUpdateTime: "2026-01-01T00:00:00Z",
  };
  t.match(factsOf([{ type: "Running", status: "True" }, ended]), {
    state: "Failed",
    reason: "FreezeLifted",
    endedAt: Date.parse("2026-01-01T00:00:00Z"),
    resourceName: "pods",
    isOurs: false,
  });
  for (const [text, attempt] of [
    ["3", 3],
    ["x", 1],
    ["0", 1],
    ["-1", 1],
    ["1.5", 1],
    ["1e999", 1],
  ] as const) {
    t.equal(factsOf([], { "ksvm.sigs.k8s.io/attempt": text }).attempt, attempt, text);
  }
});
