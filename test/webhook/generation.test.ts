import tap from "tap";
import { GENERATION_ANNOTATION } from "../../src/api/names.ts";
import { generationOf } from "../../src/webhook/generation.ts";

await tap.test("generationOf() is 0 for whatever is no generation", async (t) => {
  for (const stamp of [
    "",
    "0",
    "-1",
    "01",
    "1.5",
    "1e9",
    "NaN",
    "Infinity",
    "0x10",
    " 7",
    "7 ",
    "7\n",
    "٣",
    "1234567890",
  ]) {
    t.equal(generationOf({ metadata: { annotations: { [GENERATION_ANNOTATION]: stamp } } }), 0, JSON.stringify(stamp));
  }
  t.equal(generationOf({ metadata: {} }), 0);
  t.equal(generationOf({ metadata: { annotations: {} } }), 0);
  t.equal(generationOf({ metadata: { annotations: { [GENERATION_ANNOTATION]: "999999999" } } }), 999_999_999);
});
