import assert from "node:assert/strict";
import tap from "tap";
import { REENCRYPT_ANNOTATION } from "../../../src/api/names.ts";
import { SimEtcd } from "../model/etcd.ts";
import type { ModelObject } from "../model/model-object.ts";
import type { ModelRequest } from "../model/types.ts";
import type { KindPlan } from "../plan.ts";
import { objectsPrefixOf } from "../world/kinds.ts";
import type { World } from "../world/world.ts";
import { MigratedCheck } from "./migrated-check.ts";

const SECRETS: KindPlan = { plural: "secrets", versions: ["v1"], createdIn: "v1", objects: 2, isBuiltIn: true };
const MIGRATION = "/registry/migration.k8s.io/storageversionmigrations/secrets";
const CONFIG = `sha256:${"a".repeat(64)}`;
const OTHER_CONFIG = `sha256:${"b".repeat(64)}`;
const KEYS: Readonly<Record<string, number>> = { [CONFIG]: 2, [OTHER_CONFIG]: 1 };

/** What the check says of a re-encryption of Secrets that a replica calls Succeeded. */
function judged(keys: readonly number[], { wish = "true", config = CONFIG } = {}): readonly string[] {
  const etcd = new SimEtcd();
  const violations: string[] = [];
  let writer = "user";
  const follower: { sent?: (request: ModelRequest) => void } = {};
  const world = {
    cluster: {
      etcd,
      nodes: [],
      keyOf: (hash: string) => KEYS[hash],
      onRequest: (told: (request: ModelRequest) => void) => void (follower.sent = told),
    },
    plan: { kinds: [SECRETS] },
    schedule: { now: 1_000_000 },
    violate: (violation: string) => void violations.push(violation),
  } as unknown as World;
  const put = (by: string, key: string, object: object, encryptionKey = 0): void => {
    writer = by;
    etcd.put(key, { object: object as ModelObject, encryptionKey }, etcd.get(key)?.modRevision ?? 0);
  };
  assert.ok(new MigratedCheck(world, () => writer));
  const migration = {
    metadata: { name: "secrets", annotations: { [REENCRYPT_ANNOTATION]: wish } },
    spec: { resource: { group: "", version: "v1", resource: "secrets" } },
  };
  put("user", MIGRATION, migration);
  for (const [index, key] of keys.entries()) {
    put("user", `${objectsPrefixOf(SECRETS)}${index}`, { apiVersion: "v1", metadata: {} }, key);
  }
  const path = "/api/v1/namespaces/default/secrets/secrets-0";
  follower.sent?.({ method: "PATCH", path, query: new URLSearchParams(), headers: {}, body: "", user: "ksvm-0-0" });
  put("user", `${objectsPrefixOf(SECRETS)}9`, { apiVersion: "v1", metadata: {} }, 1);
  const message = `Every object is encrypted by ${config}`;
  const conditions = [{ type: "Succeeded", status: "True", reason: "Reencrypted", message }];
  put("ksvm-0-0", MIGRATION, { ...migration, status: { conditions } });
  return violations;
}

await tap.test("a re-encryption of a built-in resource that is called Succeeded is one", (t) => {
  t.same(judged([2, 2]), [], "what is written after its last write does not count");
  t.match(judged([2, 1]), [
    /^migrated: \S+ is Succeeded \(Reencrypted\) at \S+ \d+, and \S+ is encrypted with key 1 since/,
  ]);
  t.match(judged([2, 2], { wish: OTHER_CONFIG }), [/it means sha256:b+, and names sha256:a+$/]);
  t.match(judged([2, 2], { config: "none" }), [/was to re-encrypt, and names no key$/]);
  t.end();
});
