import type { Readable } from "node:stream";
import t from "tap";
import { IN_TREE_APISERVER, MIGRATIONS as IN_TREE_MIGRATIONS } from "../../bench/in-tree.ts";
import { EARLY_WEBHOOK_NAME, MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import { caBundleOf } from "../../src/certs/ca-bundle.ts";
import { EARLY_REASON } from "../../src/in-tree/early-migration.ts";
import type { NewObject } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CRDS, JSON_PATCH, MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { EARLY_PATH } from "../../src/webhook/app.ts";
import { earlyConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { createNamespace, ensure, readTheSecret, SETTINGS } from "./certs-fixture.ts";
import type { ProgramEnd } from "../processes/program.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind, versionsOf } from "./crd-fixture.ts";
import { isConfigured, startEarlyGuard } from "./early-guard.ts";
import { kubectlOf } from "./kubectl.ts";
import { freePort } from "./replica.ts";
import { clockAhead } from "./trigger-harness.ts";

const cluster = await Cluster.start(t, IN_TREE_APISERVER);
const { api } = cluster;
const kubectl = await kubectlOf(cluster);
await createNamespace(api);
await ensure(cluster);

/** Nothing here is too early for no more than this time, and nothing ceases to be. */
const HOUR_MS = 3_600_000;
/** Of tests that wait until a migration may be created. */
const SETTLE_MS = 8_000;
const DENIED = `admission webhook "${EARLY_WEBHOOK_NAME}" denied the request: ${EARLY_REASON}: `;

const changed = new TestKind("changed");
await cluster.createStale(changed, 0);

function migrationOf(resource: object, name = "probe"): NewObject {
  return {
    apiVersion: "storagemigration.k8s.io/v1beta1",
    kind: "StorageVersionMigration",
    metadata: { name },
    spec: { resource },
  };
}

const ofChanged = { group: GROUP, resource: changed.plural };

/** What the API server says against a migration; `undefined` where it is created. A dry run unless it has a name. */
function refusalOf(resource: object, name?: string): Promise<ApiError | undefined> {
  return api.create(IN_TREE_MIGRATIONS, migrationOf(resource, name), { dryRun: name === undefined }).then(
    () => undefined,
    (error: unknown) => {
      if (error instanceof ApiError) return error;
      throw error;
    },
  );
}

async function isInForce(): Promise<boolean> {
  return (await refusalOf(ofChanged)) !== undefined;
}

async function textOf(body: Readable): Promise<string> {
  return (await body.toArray()).join("");
}

/** A dry run that shows warnings. */
function createByKubectl(): Promise<ProgramEnd> {
  return kubectl(["create", "--dry-run=server", "-f", "-"], migrationOf(ofChanged));
}

await t.test("without the guard, and where its webhook is down, migrations are created as ever", async (t) => {
  t.equal(await refusalOf(ofChanged), undefined);
  const caBundle = caBundleOf(await readTheSecret(cluster)) ?? "";
  const url = `https://127.0.0.1:${await freePort()}${EARLY_PATH}`;
  const configuration = earlyConfigurationOf({ clientConfig: { url, caBundle } });
  await api.create(WEBHOOK_CONFIGURATIONS, { ...configuration });
  t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, configuration.metadata));
  const calls = async (): Promise<boolean> => {
    const { body: text } = await api.transport.read({ method: "GET", path: "/metrics", accept: "text/plain" }, textOf);
    return new RegExp(`apiserver_admission_webhook_fail_open_count{name="${EARLY_WEBHOOK_NAME}"[^}]*} [1-9]`).test(
      text,
    );
  };
  await eventually(async () => {
    t.equal(await refusalOf(ofChanged), undefined);
    return calls();
  }, "the API server has called in vain");
});

await t.test("in mode deny a migration is refused only for the CRD whose versions changed", async (t) => {
  await api.create(IN_TREE_MIGRATIONS, migrationOf(ofChanged, "before"));
  await startEarlyGuard(t, cluster, { mode: "deny", settleMs: HOUR_MS });
  await eventually(isInForce, "the webhook is in force");
  for (const name of [undefined, "real"]) {
    const refusal = await refusalOf(ofChanged, name);
    t.equal(refusal?.status, 403);
    t.match(refusal?.said, DENIED);
    const [, seconds = ""] = /; retry in (\d+) s$/.exec(refusal?.said ?? "") ?? [];
    t.ok(Number(seconds) > 3_000 && Number(seconds) <= 3_601, `${seconds} s`);
    t.equal(refusal?.answer?.details?.retryAfterSeconds, Number(seconds), "for programs");
  }
  const fresh = new TestKind("fresh");
  await cluster.createCrd(fresh, { storage: "v1alpha1" });
  for (const resource of [
    { group: GROUP, resource: fresh.plural },
    { group: GROUP, resource: "nothings" },
    { group: "apps", resource: "deployments" },
    { group: "", resource: "secrets" },
  ]) {
    t.equal(await refusalOf(resource), undefined, JSON.stringify(resource));
  }
  const label = { type: MERGE_PATCH, body: { metadata: { labels: { a: "b" } } } };
  await api.patch(IN_TREE_MIGRATIONS, { name: "before" }, label);
  const running = {
    type: "Running",
    status: "True",
    reason: "Test",
    message: "",
    lastTransitionTime: "2026-01-01T00:00:00Z",
  };
  const status = { type: MERGE_PATCH, body: { status: { conditions: [running] } } };
  await api.patch(IN_TREE_MIGRATIONS, { name: "before" }, status, { subresource: "status" });
  await api.delete(IN_TREE_MIGRATIONS, { name: "before" });
});

const CLOCKS = [
  ["right", 0],
  ["ten minutes ahead", 600_000],
  ["ten minutes behind", -600_000],
] as const;

await t.test(
  "in mode deny a migration is created once the settle time is over, also where a clock is wrong",
  async (t) => {
    for (const [name, aheadMs] of CLOCKS) {
      await t.test(`the clock of the replica is ${name}`, async (t) => {
        const kind = new TestKind("settles");
        await startEarlyGuard(t, cluster, { mode: "deny", settleMs: SETTLE_MS }, clockAhead(aheadMs));
        await cluster.createStale(kind, 0);
        const changedAt = performance.now();
        const resource = { group: GROUP, resource: kind.plural };
        await eventually(async () => (await refusalOf(resource)) !== undefined, "the webhook is in force");
        await eventually(async () => (await refusalOf(resource, kind.plural)) === undefined, "the time is over");
        t.ok(performance.now() - changedAt >= SETTLE_MS - 1_000, "and no sooner");
        await api.delete(IN_TREE_MIGRATIONS, { name: kind.plural });
      });
    }
  },
);

await t.test(
  "in mode warn kubectl shows why it is too early, and the migration is created; off says nothing",
  async (t) => {
    for (const mode of ["warn", "off"] as const) {
      await t.test(mode, async (t) => {
        await startEarlyGuard(t, cluster, { mode, settleMs: HOUR_MS });
        let warned = "";
        const isAsked = async (): Promise<boolean> => {
          const { code, stderr } = await createByKubectl();
          t.equal(code, 0, stderr);
          warned = stderr.replaceAll(/\s+/g, " ");
          return warned !== "";
        };
        if (mode === "warn") {
          await eventually(isAsked, "the webhook is in force");
          t.match(
            warned,
            `Warning: ${EARLY_REASON}: the versions of CustomResourceDefinition "${changed.name}" changed `,
          );
          t.match(warned, /; create another one in \d+ s/);
        } else {
          for (let n = 0; n < 5; n++) t.equal(await isAsked(), false);
        }
      });
    }
  },
);

await t.test(
  "no migration slips through while the certificates are rotated, and the configuration is restored",
  async (t) => {
    await startEarlyGuard(t, cluster, { mode: "deny", settleMs: HOUR_MS });
    await eventually(isInForce, "the webhook is in force");
    const before = caBundleOf(await readTheSecret(cluster));
    const over = new AbortController();
    let [refused, created] = [0, 0];
    const probing = (async () => {
      while (!over.signal.aborted) {
        if (await isInForce()) refused++;
        else created++;
      }
    })();
    const steps = await ensure(cluster, {
      rotateNow: true,
      wait: true,
      settings: { ...SETTINGS, replicaEndpoints: [] },
    });
    over.abort();
    await probing;
    t.not(caBundleOf(await readTheSecret(cluster)), before, JSON.stringify(steps));
    t.ok(refused > 50, `${refused} refused`);
    t.equal(created, 0, "created");
    const ref = { name: EARLY_WEBHOOK_NAME };
    const opened = [{ op: "replace", path: "/webhooks/0/rules/0/operations", value: ["DELETE"] }];
    for (const damage of [
      () => api.delete(WEBHOOK_CONFIGURATIONS, ref),
      () => api.patch(WEBHOOK_CONFIGURATIONS, ref, { type: JSON_PATCH, body: opened }),
      () => api.patch(WEBHOOK_CONFIGURATIONS, ref, { type: MERGE_PATCH, body: { webhooks: [] } }),
    ]) {
      await damage();
      await eventually(() => isConfigured(api), "it is restored");
      await eventually(isInForce, "it is in force again");
    }
  },
);

await t.test("many creations at once, of the largest CRDs, leave the freeze as it is", async (t) => {
  const huge = new TestKind("huge");
  await cluster.createStale(huge, 0);
  const description = "x".repeat(1_200_000);
  const versions = versionsOf({ storage: "v1" }).map((version) => ({
    ...version,
    schema: { openAPIV3Schema: { ...version.schema.openAPIV3Schema, ...(version.storage ? { description } : {}) } },
  }));
  await api.patch(CRDS, huge, { type: MERGE_PATCH, body: { spec: { versions } } });
  await startEarlyGuard(t, cluster, { mode: "deny", settleMs: HOUR_MS });
  await eventually(isInForce, "the webhook is in force");
  const frozen = new TestKind("frozen");
  await cluster.createCrd(frozen, { storage: "v1alpha1" });
  await api.patch(CRDS, frozen, {
    type: MERGE_PATCH,
    body: { metadata: { annotations: { [MIGRATING_ANNOTATION]: "true" } } },
  });
  const flip = { type: MERGE_PATCH, body: { spec: { versions: versionsOf({ storage: "v1" }) } } };
  const flood = (count: number) =>
    Promise.all(Array.from({ length: count }, () => refusalOf({ group: GROUP, resource: huge.plural })));
  const some = flood(60);
  for (let n = 0; n < 5; n++) {
    await t.rejects(api.patch(CRDS, frozen, flip, { dryRun: true }), { message: /StorageVersionFrozen/ });
  }
  const judged = (await some).filter((refusal) => refusal?.said.startsWith(DENIED));
  t.comment(`${judged.length} of 60 were refused, the others warned about`);
  t.ok(judged.length > 0);
  // More than an API server may have connections: some fail, which never lets a storage change through.
  const many = flood(300);
  for (let n = 0; n < 5; n++) await t.rejects(api.patch(CRDS, frozen, flip, { dryRun: true }));
  const refused = (await many).filter((refusal) => refusal?.said.startsWith(DENIED));
  t.comment(`${refused.length} of 300 were refused, the others created`);
  await eventually(isInForce, "afterwards they are judged again");
  await t.rejects(api.patch(CRDS, frozen, flip, { dryRun: true }), { message: /StorageVersionFrozen/ });
});
