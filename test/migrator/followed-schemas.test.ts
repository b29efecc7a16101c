import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { FollowedSchemas } from "../../src/migrator/followed-schemas.ts";
import type { ForeignPrunes } from "../../src/migrator/foreign-prunes.ts";
import { StartAgain } from "../../src/retry/start-again.ts";
import { crdWith } from "../api/crd-with.ts";

const CRD = crdWith();
let generation = 1;

/** Each version has these fields in its spec. */
function withFields(...fields: readonly string[]): CustomResourceDefinition {
  const metadata = { ...CRD.metadata, generation: ++generation, resourceVersion: `${generation}` };
  const spec = { type: "object", properties: Object.fromEntries(fields.map((field) => [field, { type: "string" }])) };
  const schema = { openAPIV3Schema: { type: "object", properties: { spec } } };
  const versions = CRD.spec.versions.map((version) => ({ ...version, schema }));
  return { ...CRD, metadata, spec: { ...CRD.spec, versions } };
}

/** What a run does with the schemas of its CRD, in order: a look finds the CRD as `now`. */
function schemasOf(converts: boolean) {
  const [broken, done, cluster] = [[] as unknown[], [] as string[], { now: withFields("a") }];
  const look = async (): Promise<void> => {
    done.push("look");
    schemas.saw(cluster.now);
  };
  let isOutdated = false;
  const prunes = {
    outdate: () => void (isOutdated = true),
    lookFromNow: look,
    passed: async (confirmed: () => Promise<void>) => {
      const isDue = isOutdated;
      isOutdated = false;
      if (isDue) await look();
      await confirmed();
      done.push("passed");
    },
  } as unknown as ForeignPrunes;
  const schemas: FollowedSchemas = new FollowedSchemas(prunes, converts);
  schemas.onBroken = (reason) => broken.push(reason);
  schemas.saw(cluster.now);
  return { broken, cluster, done, schemas };
}
const confirm = async (): Promise<void> => undefined;

await tap.test("FollowedSchemas lets schemas change after a look that follows the first list", async (t) => {
  const { broken, cluster, done, schemas } = schemasOf(false);
  await schemas.passed(confirm);
  t.same(done, ["passed"], "a write before the first list, such as that of the Lease");
  schemas.pageRead();
  await schemas.passed(confirm);
  cluster.now = withFields("a", "b");
  schemas.pageRead();
  await schemas.objectRead();
  await schemas.passed(confirm);
  schemas.saw(cluster.now);
  t.same(done.slice(1), ["look", "passed", "passed"], "what comes later lies beyond the watermark");
  t.same(broken, []);
});

await tap.test(
  "FollowedSchemas has a run begin again where the first list may have objects with new fields",
  async (t) => {
    const { broken, cluster, schemas } = schemasOf(false);
    cluster.now = withFields("a", "b");
    const early = schemas.passed(confirm);
    schemas.pageRead();
    await early;
    t.same(broken, []);
    await t.rejects(schemas.passed(confirm), { message: /its schema changed,.*: spec\.b is new;/ });
    t.ok(broken[0] instanceof StartAgain, "what is under way ends as well");
  },
);

await tap.test(
  "FollowedSchemas counts each schema that API servers may have followed while they settled",
  async (t) => {
    const { cluster, schemas } = schemasOf(false);
    schemas.saw(withFields());
    cluster.now = withFields("a");
    schemas.pageRead();
    await t.rejects(schemas.passed(confirm), { message: /spec\.a is new/ });
  },
);

await tap.test(
  "FollowedSchemas forgets no schema, however often another client edits the CRD while API servers settle",
  async (t) => {
    const { broken, cluster, schemas } = schemasOf(false);
    for (let edit = 0; edit < 20; edit++) schemas.saw(withFields("a", "c"));
    for (let edit = 0; edit < 7; edit++) {
      schemas.saw(withFields("a", "c", `b${edit}`));
      schemas.saw(withFields("a", "c"));
    }
    t.same(broken, []);
    cluster.now = withFields("a", "c");
    schemas.pageRead();
    await t.rejects(schemas.passed(confirm), { message: /spec\.c is new/ });
  },
);

await tap.test(
  "FollowedSchemas counts a schema that came and went before the first list also where the watch tells of it later",
  async (t) => {
    const { broken, cluster, schemas } = schemasOf(false);
    const gone = withFields();
    cluster.now = withFields("a");
    const upTo: unknown[] = [];
    schemas.toldUpTo = async (crd) => {
      upTo.push(crd);
      schemas.saw(gone);
    };
    schemas.pageRead();
    await t.rejects(schemas.passed(confirm), { message: /spec\.a is new/ });
    t.same(upTo, [cluster.now], "no object is written before the watch has told of each state up to the look");
    t.ok(broken[0] instanceof StartAgain);
  },
);

await tap.test(
  "FollowedSchemas waits for the watch before it confirms the Lease, and only before the first write",
  async (t) => {
    const { done, schemas } = schemasOf(false);
    schemas.toldUpTo = async () => void done.push("told");
    const confirmed = async (): Promise<void> => void done.push("confirmed");
    await schemas.passed(confirmed);
    schemas.pageRead();
    await schemas.passed(confirmed);
    await schemas.passed(confirmed);
    t.same(done, ["confirmed", "passed", "look", "told", "confirmed", "passed", "confirmed", "passed"]);
  },
);

/** A run that begins to write after it saw so many schemas beside the first one, each of them twice. */
function passedAfter(count: number, isResumed = false): Promise<void> {
  const { schemas } = schemasOf(false);
  schemas.isResumed = () => isResumed;
  for (let round = 0; round < 2; round++) {
    for (let edit = 0; edit < count; edit++) schemas.saw(withFields(`b${edit}`));
  }
  schemas.pageRead();
  return schemas.passed(confirm);
}

await tap.test("FollowedSchemas has a run begin again where a CRD had more schemas than it keeps", async (t) => {
  await t.rejects(passedAfter(15), { message: /it had more than 15 schemas while API servers settled/ });
  await t.rejects(passedAfter(14), { message: /spec\.a is new/ });
  await t.resolves(passedAfter(15, true), "a run that goes on has the watermark of an earlier attempt");
});

await tap.test("FollowedSchemas lets the schemas change during a run that goes on from a checkpoint", async (t) => {
  const { broken, cluster, done, schemas } = schemasOf(false);
  schemas.isResumed = () => true;
  cluster.now = withFields("a", "b");
  schemas.pageRead();
  await schemas.passed(confirm);
  schemas.saw(cluster.now);
  t.same([done, broken], [["passed"], []]);
});

await tap.test(
  "FollowedSchemas has a run that converts managedFields look after each page and each object",
  async (t) => {
    const { broken, cluster, done, schemas } = schemasOf(true);
    for (let page = 0; page < 2; page++) {
      schemas.pageRead();
      await schemas.passed(confirm);
    }
    await schemas.objectRead();
    t.same(done, ["look", "passed", "look", "passed", "look"]);
    cluster.now = withFields("a", "b");
    await t.rejects(schemas.objectRead(), StartAgain);
    schemas.written();
    schemas.saw(cluster.now);
    t.equal(broken.length, 1, "no edit matters once everything is written");
  },
);
