import { pino } from "pino";
import tap from "tap";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../src/api/names.ts";
import { formatOwner } from "../../src/api/owner.ts";
import { sweepOrphans } from "../../src/controller/orphan-sweep.ts";
import { ToldReasons } from "../../src/controller/told-reasons.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";
import { type LocalServer, sendJson, startServer } from "../kube/local-server.ts";

function sweepFor(server: LocalServer) {
  const lines: { readonly level: number; readonly crd?: string; readonly msg: string }[] = [];
  const clock = new FakeClock();
  const told = new ToldReasons();
  const options = {
    client: new ApiClient(server.transport()),
    clock,
    retrier: new Retrier({ clock, random: () => 0.5 }),
    logger: pino({ level: "warn" }, { write: (line: string) => void lines.push(JSON.parse(line)) }),
    identity: "test/sweep",
    namespace: "kube-storage-migration",
    signal: new AbortController().signal,
    isBusy: () => false,
    isDead: () => false,
    assertLeading: () => undefined,
    told,
  };
  return { lines, options, told };
}

await tap.test("sweepOrphans() looks at freezes where policies cannot be listed, and says so once", async (t) => {
  const server = await startServer(t, ({ path }, response) => {
    if (path.includes("validatingadmissionpolic")) {
      sendJson(response, 500, { kind: "Status", message: "no kind is registered for the type", code: 500 });
      return;
    }
    const owner = formatOwner({ lease: "elsewhere/lease", identity: "run", since: "2026-01-01T00:00:00.000Z" });
    const annotations = { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: owner };
    const items = [{ metadata: { name: "stays.example.com", annotations } }];
    sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata: { resourceVersion: "1" }, items });
  });
  const { lines, options } = sweepFor(server);
  await sweepOrphans(options);
  await sweepOrphans(options);
  t.equal(lines.filter(({ crd }) => crd === "stays.example.com").length, 1);
  const told = lines.filter(({ msg }) => msg === "Cannot look for policies of dead runs");
  t.equal(told.length, 2, "once of policies, and once of bindings");
});

await tap.test("sweepOrphans() says once why a freeze stays, and remembers only what stays", async (t) => {
  let frozen = 0;
  const server = await startServer(t, (_, response) => {
    // Another run each time, on a Lease that cannot be judged from here, beside one that stays.
    const items = ["stays", `run ${frozen}`].map((identity) => {
      const owner = formatOwner({ lease: "elsewhere/lease", identity, since: "2026-01-01T00:00:00.000Z" });
      const annotations = { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: owner };
      return { metadata: { name: `${identity === "stays" ? "stays" : "comes"}.example.com`, annotations } };
    });
    sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata: { resourceVersion: "1" }, items });
  });
  const { lines, options, told } = sweepFor(server);
  for (; frozen < 50; frozen++) {
    await sweepOrphans(options);
  }
  t.equal(lines.filter(({ crd }) => crd === "stays.example.com").length, 1);
  t.equal(lines.filter(({ crd }) => crd === "comes.example.com").length, 50);
  t.equal(told.size, 2, "a controller that lives for months remembers no more than there is");
});

await tap.test("ToldReasons takes a few reasons of one subject for news", async (t) => {
  const told = new ToldReasons();
  const isNews = Array.from({ length: 1_000 }, (_, second) => told.isNews("a", `503 at ${second}`));
  t.ok(isNews[0]);
  t.ok(told.size < 20, `${told.size} are remembered`);
  t.ok(told.isNews("b", "503"));
  t.notOk(told.isNews("b", "503"));
  told.keepOnly(new Set(["b"]));
  t.equal(told.size, 1);
});
