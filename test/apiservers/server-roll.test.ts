import tap from "tap";
import { notFoundAgain } from "../../src/apiservers/server-roll.ts";

await tap.test("notFoundAgain() names the right that is missing, and does not say that nothing answered", async (t) => {
  const found = { server: "https://api", wanted: "17.5", tries: 20 };
  t.match(notFoundAgain({ ...found, denial: undefined }), /no longer answers on 20 new connections/);
  const text = notFoundAgain({ ...found, denial: new Error('this user may not get "/metrics"') });
  t.match(text, /cannot be told from others on 20 new connections .*: this user may not get "\/metrics"$/);
  t.notMatch(text, /does not answer/);
});
