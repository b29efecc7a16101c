import tap from "tap";
import { FollowedSchemas } from "../../src/migrator/followed-schemas.ts";
import type { ForeignPrunes } from "../../src/migrator/foreign-prunes.ts";

/** What a run does with the schemas of its CRD, in order. */
function schemasOf(converts: boolean) {
  const done: string[] = [];
  const prunes = {
    outdate: () => void done.push("outdate"),
    lookFromNow: async () => void done.push("look"),
    passed: async () => void done.push("passed"),
  } as unknown as ForeignPrunes;
  const schemas = new FollowedSchemas(prunes, converts);
  schemas.letChange = () => void done.push("may change");
  return { done, schemas };
}
const confirm = async (): Promise<void> => undefined;

await tap.test("FollowedSchemas lets schemas change after a look that follows the first list", async (t) => {
  const { done, schemas } = schemasOf(false);
  await schemas.passed(confirm);
  t.same(done, ["passed"], "a write before the first list, such as that of the Lease");
  const early = schemas.passed(confirm);
  schemas.pageRead();
  await early;
  t.same(done, ["passed", "passed", "outdate"], "one that began before that list");
  await schemas.passed(confirm);
  schemas.pageRead();
  await schemas.objectRead();
  t.same(done.slice(3), ["passed", "may change"], "what comes later lies beyond the watermark");
});

await tap.test(
  "FollowedSchemas has a run that converts managedFields look after each page and each object",
  async (t) => {
    const { done, schemas } = schemasOf(true);
    for (let page = 0; page < 2; page++) {
      schemas.pageRead();
      await schemas.passed(confirm);
    }
    await schemas.objectRead();
    t.same(done, ["outdate", "passed", "outdate", "passed", "look"]);
  },
);
