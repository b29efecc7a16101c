import { withCluster } from "../with-cluster.ts";
import { Arena, type Part, type PartContext, type Row } from "./arena.ts";
import { type Contender, IN_TREE, ksvm, peer } from "./contenders.ts";
import { PEER_SOURCE } from "./peer.ts";
import { withDistance } from "./route.ts";

/** So many that the start of a run does not decide. */
const OBJECTS = 12_000;
/** Others do the same number in a second however many there are, and at 50 ms they would take a quarter of an hour. */
const OBJECTS_OF_OTHERS = 1_500;
const ROUND_TRIPS_MS = [0, 10, 50] as const;

export const DISTANCE: Part = {
  name: "distance",
  title: "Far away",
  about: `Objects of 2 KB, with a round trip of so many milliseconds between the migrator and the API server. The others get ${OBJECTS_OF_OTHERS.toLocaleString("en")} objects: at 50 ms, ${OBJECTS.toLocaleString("en")} would take them a quarter of an hour.`,
  async run(context) {
    const ours = [ksvm("ksvm")];
    const rows = [...(await measured(ours, OBJECTS, context))];
    const { peerSource } = context;
    const others: Contender[] = [IN_TREE];
    if (peerSource === undefined) {
      rows.push({ name: "kube-storage-version-migrator", note: `source missing: ${PEER_SOURCE} names no folder` });
    } else {
      const lifted = ["--kube-api-qps=100000", "--kube-api-burst=100000"];
      others.unshift(peer("kube-storage-version-migrator, limits lifted", peerSource, lifted));
    }
    return [...rows, ...(await measured(others, OBJECTS_OF_OTHERS, context))];
  },
};

async function measured(
  contenders: readonly Contender[],
  objects: number,
  context: PartContext,
): Promise<readonly Row[]> {
  const rows: Row[] = [];
  await withCluster({ signal: context.signal }, async (cluster) => {
    const arena = await Arena.create(cluster, objects, context);
    for (const contender of contenders) {
      for (const roundTripMs of ROUND_TRIPS_MS) {
        await withDistance(cluster, roundTripMs, async (route) => {
          const { name, ...row } = await arena.measure(contender, route);
          rows.push({ name, "round trip ms": roundTripMs, objects, ...row });
        });
      }
    }
  });
  return rows;
}
