import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import { politely } from "../../src/migrator/politely.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Limiter } from "../../src/retry/limiter.ts";
import { Pacer } from "../../src/retry/pacer.ts";
import { FakeClock } from "../fake-clock.ts";

const WIDGETS = { group: "example.com", version: "v1", resource: "widgets" };

/** What of the context it needs, and the paths that were read. */
function prepare(isUrgent: boolean): { readonly context: RunContext; readonly read: string[] } {
  const read: string[] = [];
  const clock = new FakeClock();
  const client = {
    find: async (_: unknown, { namespace, name }: { namespace: string; name: string }) =>
      void read.push(`${namespace}/${name}`),
  } as unknown as ApiClient;
  const pacer = new Pacer({
    clock,
    maxInFlight: 4,
    maxQps: Number.POSITIVE_INFINITY,
    limiter: new Limiter({ maxInFlight: 4 }),
  });
  const context = { client, clock, pacer, isUrgent, options: { leaseNamespace: "kube-system" } };
  return { context: context as unknown as RunContext, read };
}

await tap.test("politely() reads the Lease of the run while the work goes on", async (t) => {
  const { context, read } = prepare(false);
  await politely(context, WIDGETS, () => context.clock.sleep(1_000));
  t.ok(read.length > 0);
  t.same([...new Set(read)], ["kube-system/ksvm-migrate.widgets.example.com"]);
});

await tap.test("politely() reads nothing in an urgent run", async (t) => {
  const { context, read } = prepare(true);
  await politely(context, WIDGETS, () => context.clock.sleep(1_000));
  t.same(read, []);
});
