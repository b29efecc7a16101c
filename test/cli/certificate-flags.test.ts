import tap from "tap";
import { furtherNamesOf } from "../../src/cli/flags/certificate-flags.ts";

await tap.test("furtherNamesOf() adds the host of --webhook-url to --extra-names, once", async (t) => {
  t.same(furtherNamesOf({}), []);
  t.same(furtherNamesOf({ extraNames: ["a.example"] }), ["a.example"]);
  const webhookUrl = "https://b.example:9443/validate";
  t.same(furtherNamesOf({ webhookUrl }), ["b.example"]);
  t.same(furtherNamesOf({ extraNames: ["a.example", "b.example"], webhookUrl }), ["a.example", "b.example"]);
  t.same(furtherNamesOf({ webhookUrl: "https://[fd00::1]:9443/validate" }), ["fd00::1"], "without brackets");
});
