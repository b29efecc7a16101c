import type { NewObject } from "../../test/api-client.ts";
import { TestKind } from "../../test/integration/crd-fixture.ts";
import type { Cluster } from "../../test/integration/cluster.ts";
import { runKsvm } from "../run-ksvm.ts";
import { say } from "../run-script.ts";
import { withCluster } from "../with-cluster.ts";
import { type Part, type PartContext, type Row, rounded } from "./arena.ts";
import { idleController } from "./idle-controller.ts";
import { loadObjects } from "./load-objects.ts";

const LARGE = 300;
const RESOURCES = 16;
const IDLE_CRDS = 1_000;

export const SIZE: Part = {
  name: "size",
  title: "Size",
  about: `Objects of 2 KB, ${LARGE} objects of 1 MB, ${RESOURCES} resources with 250 objects each in one \`ksvm migrate --all\`, and \`ksvm controller\` on ${IDLE_CRDS.toLocaleString("en")} CRDs on which nothing is to be done, for a minute. Seconds include the start of the process and the wait for writes that may still be under way.`,
  async run(context) {
    const rows = [await small(1_000, context), await small(10_000, context)];
    await withCluster({ signal: context.signal }, async (cluster) => {
      const kind = new TestKind("large");
      await cluster.createCrd(kind, { storage: "v1alpha1" });
      const spec = { text: "x".repeat(1_000_000) };
      for (let index = 0; index < LARGE; index += 4) {
        const few = [0, 1, 2, 3].map((one): NewObject => ({ ...kind.object(`l${index + one}`, "v1alpha1"), spec }));
        await cluster.createObjects(kind.resource("v1alpha1"), few);
      }
      await cluster.setVersions(kind, { storage: "v1" });
      rows.push(
        await migrated(cluster, { name: `${LARGE} objects of 1 MB`, count: LARGE, args: [kind.name] }, context),
      );
    });
    await withCluster({ signal: context.signal }, async (cluster) => {
      for (let index = 0; index < RESOURCES; index++) await cluster.createStale(new TestKind(`many${index}x`), 250);
      rows.push(
        await migrated(
          cluster,
          { name: `${RESOURCES} resources, --all`, count: RESOURCES * 250, args: ["--all"] },
          context,
        ),
      );
    });
    rows.push(await idleController(IDLE_CRDS, context));
    return rows;
  },
};

export const MILLION: Part = {
  name: "million",
  title: "A million objects",
  about:
    "Objects of 2 KB, loaded straight into etcd; for the million, the API server has no watch cache, which would need more than 22 GB.",
  isLong: true,
  async run(context) {
    return [await small(100_000, context), await small(1_000_000, context)];
  },
};

/** With a million objects the watch cache of an API server takes more than 22 GB, so it is off. */
const MOST_IN_CACHE = 100_000;

async function small(count: number, context: PartContext): Promise<Row> {
  let row: Row = {};
  const options =
    count > MOST_IN_CACHE
      ? { etcdArgs: ["--quota-backend-bytes=8589934592"], extraArgs: ["--watch-cache=false"] }
      : { etcdArgs: [] };
  await withCluster({ signal: context.signal, ...options }, async (cluster) => {
    const kind = new TestKind("size");
    await cluster.createCrd(kind, { storage: "v1alpha1" });
    say(`loading ${count} objects into etcd`);
    await loadObjects(cluster, kind, count);
    await cluster.setVersions(kind, { storage: "v1" });
    row = await migrated(
      cluster,
      { name: `${count.toLocaleString("en")} objects`, count: count, args: [kind.name] },
      context,
    );
    const stored = await cluster.storedAs(kind);
    if (stored["v1"] !== count) throw new Error(`Cannot count this run: etcd holds ${JSON.stringify(stored)}`);
  });
  return row;
}

async function migrated(
  cluster: Cluster,
  { name, count, args }: { readonly name: string; readonly count: number; readonly args: readonly string[] },
  { program, signal }: PartContext,
): Promise<Row> {
  const run = await runKsvm(["migrate", ...args, "--unsafe-settle", "1s", "-o", "json"], {
    kubeconfig: cluster.kubeconfig,
    signal,
    program,
  });
  if (run.code !== 0 || run.usage === undefined) throw new Error(`Cannot count this run: ${run.code}: ${run.stderr}`);
  const row = {
    name,
    seconds: rounded(run.seconds, 1),
    "objects/s": Math.round(count / run.seconds),
    "peak MiB": Math.round(run.usage.peakMegabytes),
    "CPU s": rounded(run.usage.cpuSeconds, 1),
  };
  say(`${name}: ${row.seconds} s, ${row["peak MiB"]} MiB`);
  return row;
}
