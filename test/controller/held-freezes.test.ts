import pino from "pino";
import tap, { type Test } from "tap";
import { CRD_FIELD_MANAGER, MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../src/api/names.ts";
import { formatOwner } from "../../src/api/owner.ts";
import { HeldFreezes } from "../../src/controller/held-freezes.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { observeMigration } from "../../src/controller/observe-migration.ts";
import { ResourceSeries } from "../../src/observability/resource-series.ts";
import { ManualClock } from "../manual-clock.ts";

const CRD = "widgets.example.com";
const SHOWN = [{ resource: CRD }];

/** The metadata of a CRD that a run of this replica, or of another, froze. */
function frozenBy(identity: string) {
  const owner = formatOwner({ lease: "ns/ksvm-migrate.x", identity, since: "2026-01-01T00:00:00Z" });
  const annotations = { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: owner };
  const fieldsV1 = { "f:metadata": { "f:annotations": { [`f:${MIGRATING_ANNOTATION}`]: {} } } };
  return { metadata: { name: CRD, annotations, managedFields: [{ manager: CRD_FIELD_MANAGER, fieldsV1 }] } };
}

function setUp(t: Test) {
  const clock = new ManualClock();
  const metrics = new Metrics();
  const cluster: { read: () => unknown } = { read: () => frozenBy("me/uid/1") };
  const client = { findMetadata: async () => cluster.read() } as unknown as ApiClient;
  const freezes = new HeldFreezes({ client, clock, logger: pino({ level: "silent" }), metrics, identity: "me" });
  const stop = new AbortController();
  const ended = freezes.run(stop.signal);
  t.teardown(async () => {
    stop.abort();
    await ended;
  });
  const shown = async (): Promise<readonly unknown[]> =>
    (await metrics.freezeStarted.get()).values.map(({ labels }) => labels);
  const observer = observeMigration(metrics, CRD, { freezes, series: new ResourceSeries(metrics) });
  return { clock, cluster, freezes, observer, shown };
}

const FROZEN = { type: "frozen", storageVersion: "v2", guard: { kind: "webhook", name: "w" } } as const;

await tap.test(
  "HeldFreezes shows a freeze until it is proven that it was lifted, also after its run has ended",
  async (t) => {
    const { clock, cluster, observer, shown } = setUp(t);
    observer.event(FROZEN);
    observer.end();
    t.same(await shown(), SHOWN, "lifting failed");
    await clock.advance(600_000);
    t.same(await shown(), SHOWN, "the CRD is frozen");
    cluster.read = () => {
      throw new ApiError("GET crd", 503, { text: "later" });
    };
    await clock.advance(600_000);
    t.same(await shown(), SHOWN, "nobody knows");
    cluster.read = () => ({ metadata: { name: CRD } });
    await clock.advance(15_000);
    t.same(await shown(), [], "another client lifted it");
  },
);

for (const [what, read] of [
  ["the CRD is gone", () => undefined],
  ["another replica took it over", () => frozenBy("other/uid/1")],
  ["another replica with a longer name took it over", () => frozenBy("me-too/uid/1")],
] as const) {
  await tap.test(`HeldFreezes shows a freeze no more where ${what}`, async (t) => {
    const { clock, cluster, observer, shown } = setUp(t);
    observer.event(FROZEN);
    observer.end();
    cluster.read = read;
    await clock.advance(15_000);
    t.same(await shown(), []);
  });
}

await tap.test(
  "HeldFreezes takes a run at its word that says it lifted its freeze, and looks at none under way",
  async (t) => {
    const { clock, cluster, observer, shown } = setUp(t);
    cluster.read = () => ({ metadata: { name: CRD } });
    observer.event(FROZEN);
    await clock.advance(60_000);
    t.same(await shown(), SHOWN, "the run goes on");
    observer.event({ type: "unfrozen" });
    t.same(await shown(), []);
  },
);
