import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { FollowedSchemas } from "../../src/migrator/followed-schemas.ts";
import type { ForeignPrunes } from "../../src/migrator/foreign-prunes.ts";
import { StartAgain } from "../../src/retry/start-again.ts";
import { crdWith } from "../api/crd-with.ts";

const CRD = crdWith();

/** Whose storage version has these fields in its spec. */
function withFields(...fields: readonly string[]): CustomResourceDefinition {
  const spec = { type: "object", properties: Object.fromEntries(fields.map((field) => [field, { type: "string" }])) };
  const schema = { openAPIV3Schema: { type: "object", properties: { spec } } };
  return { ...CRD, spec: { ...CRD.spec, versions: CRD.spec.versions.map((version) => ({ ...version, schema })) } };
}

/** What a run does with the schemas of its CRD, in order: a look finds the CRD as `now`. */
function schemasOf(converts: boolean) {
  const [done, cluster] = [[] as string[], { now: withFields("a") }];
  const look = async (): Promise<void> => {
    done.push("look");
    schemas.judge(cluster.now);
  };
  let isOutdated = false;
  const prunes = {
    outdate: () => void (isOutdated = true),
    lookFromNow: look,
    passed: async () => {
      if (isOutdated) await look();
      isOutdated = false;
      done.push("passed");
    },
  } as unknown as ForeignPrunes;
  const schemas: FollowedSchemas = new FollowedSchemas(prunes, converts);
  schemas.followed = withFields("a");
  return { cluster, done, schemas };
}
const confirm = async (): Promise<void> => undefined;

await tap.test("FollowedSchemas lets schemas change after a look that follows the first list", async (t) => {
  const { cluster, done, schemas } = schemasOf(false);
  await schemas.passed(confirm);
  t.same(done, ["passed"], "a write before the first list, such as that of the Lease");
  schemas.pageRead();
  await schemas.passed(confirm);
  cluster.now = withFields("a", "b");
  schemas.pageRead();
  await schemas.objectRead();
  await schemas.passed(confirm);
  schemas.judge(cluster.now);
  t.same(done.slice(1), ["look", "passed", "passed"], "what comes later lies beyond the watermark");
});

await tap.test(
  "FollowedSchemas has a run begin again where the first list may have objects with new fields",
  async (t) => {
    const { cluster, done, schemas } = schemasOf(false);
    cluster.now = withFields("a", "b");
    schemas.judge(cluster.now);
    t.same(done, [], "before that list, nothing may be written that is lost");
    const early = schemas.passed(confirm);
    schemas.pageRead();
    await early;
    await t.rejects(schemas.passed(confirm), StartAgain);
    await t.rejects(
      schemas.passed(confirm),
      { message: /its schema has a new field, spec\.b,/ },
      "also for the next write",
    );
  },
);

await tap.test("FollowedSchemas lets the schemas change during a run that goes on from a checkpoint", async (t) => {
  const { cluster, done, schemas } = schemasOf(false);
  schemas.isResumed = () => true;
  cluster.now = withFields("a", "b");
  schemas.pageRead();
  await schemas.passed(confirm);
  t.same(done, ["passed"]);
});

await tap.test(
  "FollowedSchemas has a run that converts managedFields look after each page and each object",
  async (t) => {
    const { cluster, done, schemas } = schemasOf(true);
    for (let page = 0; page < 2; page++) {
      schemas.pageRead();
      await schemas.passed(confirm);
    }
    await schemas.objectRead();
    t.same(done, ["look", "passed", "look", "passed", "look"]);
    cluster.now = withFields("a", "b");
    await t.rejects(schemas.objectRead(), StartAgain);
  },
);
