import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { WEBHOOK_CONFIGURATIONS } from "../../src/old/kube/resources.ts";
import { leaseNameOf } from "../../src/old/lease/lease-acquire.ts";
import { MAX_OPEN_PAGES } from "../../src/old/migrator/rewrite/open-pages.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { parallel } from "./parallel.ts";
import { serveWebhook } from "./serve-webhook.ts";
import { SLOW_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

/** As SLOW_FLAGS have it. */
const PAGE_SIZE = 10;

const cluster = await Cluster.start(t);
const { api } = cluster;

/**
 * An admission webhook of another owner on the Lease of a run, and on nothing else: while it is down, only the writes of
 * that Lease fail.
 */
async function leaseWebhook(t: Test, kind: TestKind) {
  const webhook = await serveWebhook(t, ({ request }: { request: { uid: string } }) => ({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid: request.uid, allowed: true },
  }));
  await api.create(WEBHOOK_CONFIGURATIONS, {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: kind.plural },
    webhooks: [
      {
        name: "leases.example.com",
        clientConfig: webhook.clientConfig,
        rules: [
          {
            apiGroups: ["coordination.k8s.io"],
            apiVersions: ["*"],
            resources: ["leases"],
            operations: ["UPDATE", "DELETE"],
          },
        ],
        matchConditions: [{ name: "one", expression: `request.name == "${leaseNameOf(kind.name)}"` }],
        sideEffects: "None",
        admissionReviewVersions: ["v1"],
      },
    ],
  });
  t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, { name: kind.plural }));
  return webhook;
}

/** How many objects a run says it is through with, in the order in which it says so, its result included. */
function doneIn(output: string): number[] {
  return [...output.matchAll(/"done":(\d+)/g)].map(([, done]) => Number(done));
}

/** Starts a run, and has the writes of its Lease fail once it rewrites objects. */
async function runWithoutLeaseWrites(
  t: Test,
  kind: TestKind,
  flags: readonly string[],
  { signal, isFar = () => true }: { readonly signal?: AbortSignal; readonly isFar?: (output: string) => boolean } = {},
) {
  const webhook = await leaseWebhook(t, kind);
  await cluster.createStale(kind, SLOW_RUN_OBJECTS);
  const seen = { output: "" };
  const ended = cluster.migrate([kind.name, "--guard", "policy", ...SLOW_FLAGS, "--max-qps", "10", ...flags], {
    onStdout: (text) => {
      seen.output += text;
    },
    ...(signal === undefined ? {} : { signal }),
  });
  await untilRewriting(cluster, kind, { ended });
  await eventually(async () => webhook.calls() > 0, "the webhook is called for the Lease");
  await eventually(async () => isFar(seen.output), "the run is far enough");
  webhook.setDown(true);
  return { webhook, seen, ended };
}

async function untilLifted(kind: TestKind): Promise<void> {
  const isLifted = async (): Promise<boolean> => !hasFreezeAnnotation(await cluster.crd(kind));
  await eventually(isLifted, "the freeze is lifted while the writes of the Lease fail", 90_000);
}

parallel("a run whose Lease cannot be written waits without a freeze, says so, and goes on when it can", async (t) => {
  const kind = new TestKind("unwritten");
  const flags = ["--max-freeze-idle", "3s", "-o", "json"];
  const isFar = (output: string): boolean => (doneIn(output).at(-1) ?? 0) > (MAX_OPEN_PAGES + 1) * PAGE_SIZE;
  const { webhook, seen, ended } = await runWithoutLeaseWrites(t, kind, flags, { isFar });
  await untilLifted(kind);
  await eventually(
    async () =>
      /"type":"waiting","reason":"Cannot continue: Lease .* cannot be renewed.*"webhook":"leases.example.com"/.test(
        seen.output,
      ),
    "the run says that it is the Lease",
  );
  await assertUnfrozen(t, cluster, kind);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], "nothing is pruned without the Lease");
  webhook.setDown(false);
  const { code, stderr } = await ended;
  t.equal(code, 0, stderr);
  t.same(await cluster.storedAs(kind), { v1: SLOW_RUN_OBJECTS });
  const [before, after] = seen.output.split('"type":"resumed"').map(doneIn);
  // Pages are rewritten while the checkpoint of an earlier one is being kept: one of the writes that failed.
  const keptAtLeast = (Math.floor((before?.at(-1) ?? 0) / PAGE_SIZE) - MAX_OPEN_PAGES) * PAGE_SIZE;
  t.ok(
    keptAtLeast > 0 && after?.every((done) => done >= keptAtLeast),
    "what users see goes on where the pages begin that were open when the Lease could not be written",
  );
  t.equal(after?.at(-1), SLOW_RUN_OBJECTS, "and each object counts once");
  await assertNoTraces(t, cluster, kind);
});
