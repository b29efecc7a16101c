import { setTimeout as sleep } from "node:timers/promises";
import { prepareClients, queueRewrites, routeOfMigrator, USERS } from "./politeness-fixture.ts";
import type { Cluster } from "../../test/integration/cluster.ts";
import { say } from "../run-script.ts";
import { withCluster } from "../with-cluster.ts";
import { Arena, type Part, type PartContext, type Row, rounded } from "./arena.ts";
import { type Contender, IN_TREE, ksvm, peer } from "./contenders.ts";
import type { Foreground, Latency } from "./foreground.ts";
import { HelperProcess } from "./helper-process.ts";
import { PEER_SOURCE } from "./peer.ts";

const OBJECTS = 6_000;
const PAIRS_PER_SECOND = 20;
const ALONE_MS = 15_000;
/** As many more as keep two cores half busy. */
const BUSY_PAIRS_PER_SECOND = 120;

const KSVM = ksvm("ksvm");
const LOW = [1, 2].map((limit) => ksvm(`ksvm --max-in-flight=${limit}`, [`--max-in-flight=${limit}`]));

export const POLITENESS: Part = {
  name: "politeness",
  title: "What other clients notice",
  about: `What ${PAIRS_PER_SECOND} pairs of a GET and a PUT in a second took in another client, in milliseconds, while ${OBJECTS.toLocaleString("en")} objects were rewritten. "Half busy" has ${BUSY_PAIRS_PER_SECOND} pairs in a second of a third client.`,
  async run(context) {
    const rows: Row[] = [];
    const { peerSource } = context;
    const peers = peerSource === undefined ? [] : [peerContender(peerSource)];
    await withCluster({ users: USERS, signal: context.signal }, async (cluster) => {
      const arena = await Arena.create(cluster, OBJECTS, context);
      await prepareClients(cluster);
      const add = async (name: string, work: Contender | undefined): Promise<void> => {
        rows.push(await felt(arena, name, work, context));
      };
      await add("alone", undefined);
      for (const contender of [KSVM, ...LOW, ...peers, KSVM]) await add(contender.name, contender);
      const lift = await queueRewrites(cluster);
      await add("ksvm, with the FlowSchemas of deploy/base", KSVM);
      await lift();
      const busy = startClient(cluster, "background", BUSY_PAIRS_PER_SECOND);
      await add("half busy: alone", undefined);
      await add("half busy: ksvm", KSVM);
      for (const contender of peers) await add(`half busy: ${contender.name}`, contender);
      await add("half busy: in-tree, limits lifted", IN_TREE);
      await busy.end();
      await add(IN_TREE.name, IN_TREE);
    });
    if (peerSource === undefined) {
      rows.push({ name: "kube-storage-version-migrator", note: `source missing: ${PEER_SOURCE} names no folder` });
    }
    return rows;
  },
};

function peerContender(source: string): Contender {
  const lifted = ["--kube-api-qps=100000", "--kube-api-burst=100000"];
  return peer("kube-storage-version-migrator, limits lifted", source, lifted);
}

function startClient({ controlPlane }: Cluster, name: string, pairsPerSecond: number): HelperProcess {
  const kubeconfig = controlPlane.kubeconfigFor("foreground");
  const client: Foreground = { kubeconfig, namespace: "default", name, pairsPerSecond };
  return HelperProcess.start("foreground.ts", [JSON.stringify(client)]);
}

/** What the foreground client felt while the contender ran, or while nothing did. */
async function felt(
  arena: Arena,
  name: string,
  contender: Contender | undefined,
  { signal }: PartContext,
): Promise<Row> {
  const { cluster } = arena;
  const client = startClient(cluster, "foreground", PAIRS_PER_SECOND);
  let row: Row = {};
  let [from, to] = [Date.now(), 0];
  if (contender === undefined) {
    await sleep(ALONE_MS, undefined, { signal });
  } else {
    const timed: Contender = {
      name,
      run: async (ring) => {
        from = Date.now();
        const took = await contender.run(ring);
        // What a contender does before that is its start: an in-tree controller that fills its cache, for example.
        from = Math.max(from, Date.now() - took.seconds * 1_000);
        to = Date.now();
        return took;
      },
    };
    row = await arena.measure(timed, routeOfMigrator(cluster));
  }
  const latencies = (JSON.parse(await client.end()) as Latency[]).filter(
    ([at]) => at >= from && (to === 0 || at <= to),
  );
  const sorted = latencies.map(([, ms]) => ms).toSorted((a, b) => a - b);
  const at = (share: number): number =>
    rounded(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0, 1);
  const worst = latencies.toSorted(([, a], [, b]) => b - a).slice(0, 5);
  const outliers = worst.map(([when, ms]) => `${rounded((when - from) / 1_000, 1)} s: ${Math.round(ms)}`).join("; ");
  const result = {
    name,
    p50: at(0.5),
    p90: at(0.9),
    p99: at(0.99),
    max: at(1),
    "objects/s": row["objects/s"],
    requests: sorted.length,
    "when the longest were": outliers,
  };
  say(`${name}: p50 ${result.p50}, p99 ${result.p99}, longest ${result.max}`);
  return result;
}
