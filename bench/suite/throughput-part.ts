import { withCluster } from "../with-cluster.ts";
import { Arena, type Part, type Row, rounded } from "./arena.ts";
import { bareLoop, IN_TREE, KUBECTL_REPLACE, ksvm, peer } from "./contenders.ts";
import { PEER_SOURCE } from "./peer.ts";

const OBJECTS = 6_000;

/** What the API server can do at most depends on how it is asked. */
const LOOPS = [
  ...[8, 16, 32, 64, 128].map((inFlight) => bareLoop({ inFlight, write: "apply", answer: "metadata" })),
  ...[8, 16, 32, 64].map((inFlight) => bareLoop({ inFlight, write: "merge", answer: "metadata" })),
  ...[16, 32, 64].map((inFlight) => bareLoop({ inFlight, write: "apply", answer: "whole" })),
];

/** ksvm is measured before the loops, between them and after them: what else the machine does falls on all alike. */
export const THROUGHPUT: Part = {
  name: "throughput",
  title: "Throughput",
  about: `${OBJECTS.toLocaleString("en")} objects of 2 KB on one API server. Seconds are those of the whole process, from its start to its end; objects/s leave out the wait for writes that may still be under way ("settle s"), which only ksvm does and which a cluster whose API servers run for longer than 16 minutes does not have. "Of the limit" compares with the best bare loop.`,
  async run(context) {
    const rows: Row[] = [];
    await withCluster({ signal: context.signal }, async (cluster) => {
      const arena = await Arena.create(cluster, OBJECTS, context);
      const ours = [ksvm("ksvm")];
      for (const contender of [...ours, ...LOOPS.slice(0, 6), ...ours, ...LOOPS.slice(6), ...ours]) {
        rows.push(await arena.measure(contender));
      }
      rows.push(await arena.measure(KUBECTL_REPLACE));
      const { peerSource } = context;
      if (peerSource === undefined) {
        rows.push({ name: "kube-storage-version-migrator", note: `source missing: ${PEER_SOURCE} names no folder` });
      } else {
        const lifted = ["--kube-api-qps=100000", "--kube-api-burst=100000"];
        rows.push(await arena.measure(peer("kube-storage-version-migrator, limits lifted", peerSource, lifted)));
        const limits = ["--kube-api-qps=40", "--kube-api-burst=1000"];
        rows.push(
          await arena.measure(peer("kube-storage-version-migrator, limits of its manifests", peerSource, limits)),
        );
      }
      // Last, so that no other contender pays for the watch that its cache keeps on all objects.
      rows.push(await arena.measure(IN_TREE));
    });
    return withShares(rows);
  },
};

function withShares(rows: readonly Row[]): readonly Row[] {
  const limit = Math.max(...rows.filter(({ name }) => String(name).startsWith("bare loop")).map(rateOf));
  return rows.map((row) => ({
    ...row,
    "of the limit": rateOf(row) === 0 ? undefined : rounded(rateOf(row) / limit, 2),
  }));
}

function rateOf(row: Row): number {
  return Number(row["objects/s"] ?? 0);
}
