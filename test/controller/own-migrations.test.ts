import pino from "pino";
import tap from "tap";
import { ownMigrations } from "../../src/controller/own-migrations.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { FakeClock } from "../fake-clock.ts";

// A stand-in: a real API server cannot be made to answer 503 for a while on demand.
await tap.test("ownMigrations() says that it waits for an outage, and when that is over", async (t) => {
  let gets = 0;
  const client = {
    get: async () => {
      gets++;
      if (gets < 4) throw new ApiError("GET crd", 503, { text: "later" });
      return { metadata: { name: "crd", uid: "u" } };
    },
    listMetadata: () => Promise.resolve({ items: [], metadata: {} }),
  } as unknown as ApiClient;
  const lines: string[] = [];
  const logger = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
  const { signal } = new AbortController();
  await ownMigrations({ client, clock: new FakeClock(), logger, random: () => 0.5, signal });
  t.equal(gets, 4);
  t.match(lines[0], /Cannot see whether a ClusterRole owns migrations; trying again/);
  t.match(lines[0], /503/);
  t.match(lines.at(-1), /Reading the owners of migrations again/);
  t.equal(lines.length, 2, "not one for each try");
});
