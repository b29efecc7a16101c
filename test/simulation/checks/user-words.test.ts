import tap from "tap";
import { UNKNOWN_HASH } from "../../../src/api/migration.ts";
import { CRD_ANNOTATION, HASH_ANNOTATION, OWNER_ANNOTATION } from "../../../src/api/names.ts";
import { reencryptAnnotation } from "../../../src/api/reencryption.ts";
import { SimEtcd } from "../model/etcd.ts";
import type { ModelObject } from "../model/model-object.ts";
import type { World } from "../world/world.ts";
import { MIGRATIONS_PREFIX, STATES_PREFIX, UserWords } from "./user-words.ts";

const NAME = "widgets.sim.example.com";
const MIGRATION = `${MIGRATIONS_PREFIX}${NAME}-a`;
const STATE = `${STATES_PREFIX}${NAME}`;

interface Said {
  readonly annotations?: Readonly<Record<string, string>>;
  readonly status?: object;
}

/** Whether these writes of users leave words of theirs, the first of them a creation. */
function hasWords(key: string, writes: readonly Said[]): boolean {
  const etcd = new SimEtcd();
  const words = new UserWords({ cluster: { etcd } } as World);
  for (const { annotations = {}, status = {} } of writes) {
    const object = {
      metadata: { name: NAME, annotations },
      spec: { resource: { group: "sim.example.com", resource: "widgets" } },
      status,
    };
    etcd.put(key, { object: object as unknown as ModelObject, encryptionKey: 0 }, etcd.get(key)?.modRevision ?? 0);
  }
  return words.has(NAME);
}

const SUCCEEDED = { status: { conditions: [{ type: "Succeeded", status: "True" }] } };
function persisted(...hashes: readonly string[]): Said {
  return { status: { persistedStorageVersionHashes: hashes } };
}

function current(hash: string): Said {
  return { status: { currentStorageVersionHash: hash } };
}

const FAILED = { status: { conditions: [{ type: "Failed", status: "True" }] } };

await tap.test("UserWords are what a user says in a migration that ksvm believes", (t) => {
  t.ok(hasWords(MIGRATION, [{}, SUCCEEDED]));
  t.ok(hasWords(MIGRATION, [{}, { status: { crd: "1/2" } }]));
  t.ok(hasWords(MIGRATION, [{ annotations: { [HASH_ANNOTATION]: "a" } }]));
  t.notOk(hasWords(MIGRATION, [{ annotations: reencryptAnnotation({}) }]), "a wish is no claim");
  t.notOk(hasWords(MIGRATION, [{}, FAILED]), "what failed proves nothing");
  t.notOk(hasWords(MIGRATION, [{}, { annotations: { [OWNER_ANNOTATION]: "nobody" } }]));
  t.end();
});

await tap.test("UserWords are what a user says in a StorageState that ksvm believes", (t) => {
  t.ok(hasWords(STATE, [persisted("a", "b"), persisted("a")]), "a version that is missing");
  t.ok(hasWords(STATE, [persisted("a"), persisted()]));
  t.notOk(hasWords(STATE, [persisted("a"), persisted(UNKNOWN_HASH)]), "ksvm rewrites every object then");
  t.notOk(hasWords(STATE, [persisted("a"), persisted("a", "b")]));
  t.ok(hasWords(STATE, [{}, current("a")]));
  t.notOk(hasWords(STATE, [{}, current(UNKNOWN_HASH)]));
  t.ok(hasWords(STATE, [{}, { annotations: { [CRD_ANNOTATION]: "1/2/v1" } }]));
  t.end();
});
