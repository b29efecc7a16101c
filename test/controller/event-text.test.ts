import tap from "tap";
import { eventTextOf } from "../../src/controller/event-text.ts";

const apiServers = ["https://a", "https://b"];

await tap.test("eventTextOf() speaks of the key where a migration re-encrypts", async (t) => {
  t.same(eventTextOf({ type: "encryptingAlike", configuration: "sha256:1", apiServers }), {
    type: "Normal",
    reason: "EncryptingAlike",
    message: "every API server encrypts with configuration sha256:1: https://a, https://b",
  });
  t.match(eventTextOf({ type: "converged", apiServers, concern: "key" }), {
    message: "every API server shows the same storage version: https://a, https://b",
  });
  t.match(eventTextOf({ type: "converged", apiServers }), {
    message: "every API server shows the storage version: https://a, https://b",
  });
});
