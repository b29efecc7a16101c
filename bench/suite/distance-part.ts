import { IN_TREE_APISERVER } from "../in-tree.ts";
import { withCluster } from "../with-cluster.ts";
import { Arena, type Part, type Row } from "./arena.ts";
import { type Contender, IN_TREE, ksvm, peer } from "./contenders.ts";
import { PEER_SOURCE } from "./peer.ts";
import { withDistance } from "./route.ts";

const OBJECTS = 4_000;
const ROUND_TRIPS_MS = [0, 10, 50] as const;

export const DISTANCE: Part = {
  name: "distance",
  title: "Far away",
  about: `${OBJECTS.toLocaleString("en")} objects of 2 KB, with a round trip of so many milliseconds between the migrator and the API server.`,
  async run(context) {
    const rows: Row[] = [];
    await withCluster({ ...IN_TREE_APISERVER, signal: context.signal }, async (cluster) => {
      const arena = await Arena.create(cluster, OBJECTS, context);
      const { peerSource } = context;
      const contenders: Contender[] = [ksvm("ksvm"), ksvm("ksvm --priority=fast", ["--priority=fast"])];
      if (peerSource === undefined) {
        rows.push({ name: "kube-storage-version-migrator", note: `source missing: ${PEER_SOURCE} names no folder` });
      } else {
        const lifted = ["--kube-api-qps=100000", "--kube-api-burst=100000"];
        contenders.push(peer("kube-storage-version-migrator, limits lifted", peerSource, lifted));
      }
      for (const contender of [...contenders, IN_TREE]) {
        for (const roundTripMs of ROUND_TRIPS_MS) {
          await withDistance(cluster, roundTripMs, async (route) => {
            const { name, ...row } = await arena.measure(contender, route);
            rows.push({ name, "round trip ms": roundTripMs, ...row });
          });
        }
      }
    });
    return rows;
  },
};
