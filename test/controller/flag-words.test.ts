import tap from "tap";
import { MissingApiServer } from "../../src/apiservers/missing-api-server.ts";
import { eventTextOf } from "../../src/controller/event-text.ts";
import { withProgramOfFlags } from "../../src/controller/flag-words.ts";
import { verdictOf } from "../../src/controller/run-verdict.ts";

const WHOSE = /\(flags of "ksvm controller"\)$/;

await tap.test("the user of a migration reads whose flags a message names", async (t) => {
  t.match(verdictOf(new MissingApiServer("apiserver-a does not answer")).message, WHOSE);
  const message = "no API server of --apiserver-endpoints is that of the identity Lease a";
  t.match(eventTextOf({ type: "warning", message })?.message, WHOSE);
  const others = "it runs without --encryption-provider-config; run ksvm resume --all";
  t.equal(withProgramOfFlags(others), others, "flags of other programs and commands are named with them");
});
