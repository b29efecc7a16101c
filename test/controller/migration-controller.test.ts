import pino from "pino";
import tap, { type Test } from "tap";
import { OWNER_ANNOTATION } from "../../src/api/names.ts";
import { stateOf } from "../../src/api/migration.ts";
import { MigrationController, type MigrationControllerOptions } from "../../src/controller/migration-controller.ts";
import type { RunObserver } from "../../src/controller/migration-jobs.ts";
import type { OpenRun } from "../../src/controller/run-factory.ts";
import { KsvmError } from "../../src/errors.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import { MERGE_PATCH, MIGRATIONS } from "../../src/kube/resources.ts";
import { MigrationFeed } from "../../src/migrations/migration-feed.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { NO_PULSE } from "../../src/pulse.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { ManualClock } from "../manual-clock.ts";
import { ApiStandIn } from "./api-stand-in.ts";

/** As the authorizer says it. */
const FORBIDDEN = 'leases is forbidden: User "u" cannot list resource "leases" in API group "coordination.k8s.io"';
const OLD = { created: "2026-01-01T00:00:00Z" };
const YOUNG = { created: "2026-01-02T00:00:00Z" };

function endAtOnce(): never {
  throw new KsvmError("ResourceNotMigratable", "it cannot be listed");
}

/** A controller of which every run ends at once, so that all there is to see is which one has its turn. */
function startController(
  t: Test,
  api: ApiStandIn,
  openRun: OpenRun = endAtOnce,
  more: Pick<MigrationControllerOptions, "observe"> = {},
) {
  const clock = new ManualClock();
  const lines: string[] = [];
  const logger = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
  const leadership = { key: "ns/l", replaced: undefined, assertLeading: () => undefined };
  const feed = new MigrationFeed({ client: api.client, clock, logger });
  const parts = { client: api.client, clock, feed, logger, openRun, identity: "a", leadership, ...more };
  const controller = new MigrationController(parts);
  const stop = new AbortController();
  const ended = controller.run(stop.signal);
  t.teardown(async () => {
    stop.abort();
    await clock.advance(10_000);
    await ended;
  });
  return { clock, lines };
}

function isClaimOf(name: string, { body, method, path }: ApiRequest): boolean {
  const { metadata } = (body ?? {}) as { metadata?: { annotations?: object } };
  return method === "PATCH" && path.endsWith(`/${name}`) && metadata?.annotations !== undefined;
}

function refused(status: number, text: string): ApiError {
  return new ApiError("PATCH", status, { text });
}

await tap.test("MigrationController has others go on while one cannot even be begun", async (t) => {
  for (const [status, text] of [
    [422, "metadata.annotations: Too long: may not be more than 262144 bytes"],
    [500, 'Internal error occurred: failed calling webhook "labels.example.com": connection refused'],
  ] as const) {
    const api = new ApiStandIn();
    api.add("broken", OLD);
    api.add("other", YOUNG);
    api.refusal = (request) => (isClaimOf("broken", request) ? refused(status, text) : undefined);
    const { clock, lines } = startController(t, api);
    // It gives its place up at the first failure after ten seconds; the jitter may put that off by half a minute.
    await clock.advance(60_000);
    t.ok(api.get("other").metadata.annotations?.[OWNER_ANNOTATION], `${status}: the other one had its turn`);
    t.equal(stateOf(api.get("other")), "Failed", `${status}: and ended`);
    t.match(lines.join(""), /A migration was broken off/);
    const { length } = api.writes;
    await clock.advance(600_000);
    t.ok(api.writes.length - length < 300, `${status}: ${api.writes.length - length} writes in ten minutes`);
    const said = lines.filter(
      (line) => line.includes("A migration was broken off") && line.includes('"broken"'),
    ).length;
    t.ok(status !== 422 || said === 1, `${status}: said ${said} times`);
    api.refusal = () => undefined;
    await clock.advance(130_000);
    t.equal(stateOf(api.get("broken")), "Failed", `${status}: it is not given up`);
  }
});

await tap.test(
  "MigrationController begins nothing where an API server that has just started knows no roles yet",
  async (t) => {
    const api = new ApiStandIn();
    api.add("one", OLD);
    api.isSuspended = true;

    api.refusal = ({ path }) => (path.endsWith("/leases") ? refused(403, FORBIDDEN) : undefined);
    const { clock } = startController(t, api);
    await clock.advance(8_000);
    t.equal(api.get("one").metadata.annotations, undefined);
    api.refusal = () => undefined;
    await clock.advance(30_000);
    t.equal(stateOf(api.get("one")), "Suspended");
  },
);

// A stand-in: its watch of the Lease is open and tells of nothing, as that of an API server that hangs.
await tap.test(
  "MigrationController stops a run within seconds of suspend --all also where no watch tells of it",
  async (t) => {
    const api = new ApiStandIn();
    api.add("one", OLD);
    const { clock } = startController(t, api, ({ signal }) => {
      const retrier = new Retrier({ clock, random: () => 0 });
      const find = (): Promise<void> => clock.sleep(3_600_000, signal);
      const context = { client: { find }, options: {}, retrier, signal } as unknown as RunContext;
      return { context, stall: () => undefined, close: () => Promise.resolve() };
    });
    await clock.advance(21_000);
    t.equal(stateOf(api.get("one")), "Running");
    api.isSuspended = true;
    await clock.advance(15_000);
    t.equal(stateOf(api.get("one")), "Suspended");
  },
);

await tap.test("MigrationController goes on where it may not see what suspends all migrations", async (t) => {
  const api = new ApiStandIn();
  api.add("one", OLD);
  api.refusal = ({ path }) => (path.endsWith("/leases") ? refused(403, FORBIDDEN) : undefined);
  const { clock } = startController(t, api);
  await clock.advance(60_000);
  t.equal(stateOf(api.get("one")), "Failed");
});

await tap.test("MigrationController writes the status of others where that of one is refused", async (t) => {
  const api = new ApiStandIn();
  for (const name of ["broken", "other"]) {
    api.add(name, { ...OLD, suspend: true });
  }
  api.refusal = ({ path }) => (path.endsWith("/broken/status") ? refused(422, "it does not fit") : undefined);
  const { clock, lines } = startController(t, api);
  await clock.advance(20_000);
  t.equal(stateOf(api.get("other")), "Suspended");
  await clock.advance(600_000);
  t.equal(lines.filter((line) => line.includes("Cannot write the status")).length, 1, "said once");
  t.ok(api.writes.filter((write) => write.includes("/broken/")).length < 60, "and not tried all the time");
});

await tap.test("MigrationController leaves one without a spec out, names it, and carries the others out", async (t) => {
  const api = new ApiStandIn();
  api.add("nothing", OLD);
  api.add("other", YOUNG);
  Reflect.deleteProperty(api.get("nothing"), "spec");
  const { clock, lines } = startController(t, api);
  await clock.advance(20_000);
  t.equal(stateOf(api.get("other")), "Failed", "it had its turn");
  t.match(
    lines.join(""),
    /"migration":"nothing","problem":"spec is missing","msg":"Left a StorageVersionMigration out/,
  );
});

await tap.test(
  "MigrationController tells of a watch that fails less and less often, and once that it works",
  async (t) => {
    const api = new ApiStandIn();
    api.add("one", OLD);
    api.refusal = ({ path }) => (path.endsWith("/storageversionmigrations") ? refused(503, "busy") : undefined);
    const { clock, lines } = startController(t, api);
    const saying = (text: string): number => lines.filter((line) => line.includes(text)).length;
    await clock.advance(600_000);
    const said = saying("Cannot follow a resource");
    t.ok(said > 0 && said <= 7, lines.join(""));
    t.equal(saying("Following a resource again"), 0);
    api.refusal = () => undefined;
    await clock.advance(60_000);
    t.equal(saying("Following a resource again"), 1);
    t.equal(stateOf(api.get("one")), "Failed", "it had its turn");
  },
);

const OTHER = JSON.stringify({ lease: "other/l", identity: "b", since: "2026-01-01T00:00:00Z" });

function isOwnedBy(owner: string, api: ApiStandIn): boolean {
  return api.get("one").metadata.annotations?.[OWNER_ANNOTATION] === owner;
}

async function patchOne(api: ApiStandIn, change: { annotations?: object; status?: object }): Promise<void> {
  const { annotations = {}, status } = change;
  const { resourceVersion } = api.get("one").metadata;
  const body = { metadata: { resourceVersion, annotations }, ...(status === undefined ? {} : { status }) };
  const options = status === undefined ? {} : { subresource: "status" };
  await api.client.patch(MIGRATIONS, { name: "one" }, { type: MERGE_PATCH, body }, options);
}

/** Has another installation take the migration over so often. @returns for how long this one stayed away after each, at most a day */
async function takeOver(api: ApiStandIn, clock: ManualClock, times: number, by = OTHER): Promise<readonly number[]> {
  const away: number[] = [];
  for (let rounds = 0; rounds < times; rounds++) {
    await patchOne(api, { annotations: { [OWNER_ANNOTATION]: by } });
    const from = clock.monotonic();
    while (isOwnedBy(by, api) && clock.monotonic() - from < 24 * 3_600_000) await clock.advance(1_000);
    away.push(clock.monotonic() - from);
  }
  return away;
}

/** Runs that get no further. */
function runsForever(clock: () => ManualClock): OpenRun {
  return ({ signal }) => {
    const retrier = new Retrier({ clock: clock(), random: () => 0 });
    const find = (): Promise<void> => clock().sleep(24 * 3_600_000, signal);
    const context = { client: { find }, options: {}, retrier, signal } as unknown as RunContext;
    return { context, stall: () => undefined, close: () => Promise.resolve() };
  };
}

await tap.test(
  "a leader stays away longer each time from a migration that another installation takes over",
  async (t) => {
    const api = new ApiStandIn();
    api.add("one", OLD);
    const { clock, lines } = startController(
      t,
      api,
      runsForever(() => clock),
    );
    await clock.advance(5_000);
    const away = await takeOver(api, clock, 8);
    t.ok((away.at(-1) ?? 0) > 600_000, `the other one gets to the end: ${away.join(", ")} ms`);
    const said = lines.filter((line) =>
      line.includes('over: \\"b\\", which leads by Lease \\"other/l\\"; remove one of the two'),
    );
    t.equal(said.length, 1, "it says who that is, and what to do, once");
  },
);

await tap.test(
  "a leader that stays away from a migration begins the next one of the resource once another installation has ended it",
  async (t) => {
    const api = new ApiStandIn();
    api.add("one", OLD);
    const { clock } = startController(
      t,
      api,
      runsForever(() => clock),
    );
    await clock.advance(5_000);
    await takeOver(api, clock, 8);
    await patchOne(api, { annotations: { [OWNER_ANNOTATION]: OTHER } });
    await clock.advance(30_000);
    const ended = { type: "Succeeded", status: "True", lastUpdateTime: "2026-01-01T00:00:00Z" };
    await patchOne(api, { status: { conditions: [ended] } });
    api.add("two", { ...YOUNG, resource: "ones" });
    await clock.advance(30_000);
    t.ok(api.get("two").metadata.annotations?.[OWNER_ANNOTATION], "the other installation may be removed by then");
  },
);

await tap.test("a migration that was broken off for other reasons is not stayed away from for longer", async (t) => {
  const api = new ApiStandIn();
  api.add("one", OLD);
  api.refusal = (request) => (isClaimOf("one", request) ? refused(422, "annotations: Too long") : undefined);
  const { clock } = startController(
    t,
    api,
    runsForever(() => clock),
  );
  await clock.advance(1_200_000);
  api.refusal = () => undefined;
  await clock.advance(65_000);
  t.equal(stateOf(api.get("one")), "Running");
  const [away = 0] = await takeOver(api, clock, 1);
  t.ok(away < 20_000, `${away} ms`);
});

await tap.test("a leader stays away from no migration for long whose owner a client took off, or wrote", async (t) => {
  const api = new ApiStandIn();
  api.add("one", OLD);
  const { clock, lines } = startController(
    t,
    api,
    runsForever(() => clock),
  );
  await clock.advance(5_000);
  const away = await takeOver(api, clock, 8, "x");
  t.ok(Math.max(...away) <= 65_000, `${away.join(", ")} ms`);
  t.notMatch(lines.join(""), /another replica took/);
  t.match(lines.join(""), /another client changed/);
});

await tap.test("a leader that stays away from a migration shows that it waits on purpose", async (t) => {
  const api = new ApiStandIn();
  api.add("one", OLD);
  const pauses: number[] = [];
  const pulse = { ...NO_PULSE, pause: (ms: number) => void pauses.push(ms) };
  const observe = (): RunObserver => ({
    event: () => undefined,
    completed: () => undefined,
    pulse,
    end: () => undefined,
  });
  const { clock } = startController(
    t,
    api,
    runsForever(() => clock),
    { observe },
  );
  await clock.advance(5_000);
  const [away = 0] = await takeOver(api, clock, 1);
  t.ok(away > 0);
  t.same(pauses, [5_000]);
});
