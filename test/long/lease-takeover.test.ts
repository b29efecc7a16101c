import t from "tap";
import type { CustomResourceDefinition } from "../crd.ts";
import { freezeOwnerOf } from "../integration/frozen.ts";
import { CRDS } from "../api-client.ts";
import { Cluster } from "../integration/cluster.ts";
import { errorCodeOf, type KsvmLine } from "../chaos/ksvm-process.ts";
import { Scenario } from "../chaos/scenario.ts";
import { TEST_SEED } from "../seed.ts";

const seed = TEST_SEED;
const cluster = await Cluster.start(t, { apiservers: 2 });
const { controlPlane } = cluster;
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) throw new Error("two API servers were asked for");
const OBJECTS = 200;
const BOTH = `${first.url},${second.url}`;
const FLAGS = ["--unsafe-settle", "1s", "--apiserver-endpoints", BOTH];
const viaSecond = controlPlane.kubeconfigFor("admin", 1);
const api = cluster.clientBy(viaSecond);

/** How many objects a run said it was through with, last. */
function doneBy({ lines }: { readonly lines: readonly KsvmLine[] }): number {
  return lines.findLast((line) => line.type === "progress")?.counts.done ?? 0;
}

await t.test("Two writers: a run cut off from its API server writes nothing after another took over", async (t) => {
  // The others write by the second API server, which stays.
  const load = { apiservers: [1] } as const;
  const scenario = await Scenario.start(t, cluster, "cutoff", { seed, objects: OBJECTS, flags: FLAGS, load });
  const owner = async (): Promise<string | undefined> =>
    freezeOwnerOf(await api.get<CustomResourceDefinition>(CRDS, scenario.kind))?.identity;
  const cutOff = scenario.startKsvm(["--max-qps", "30"]);
  await cutOff.untilLine("progress", "error");
  const before = await owner();
  await first.kill();
  t.equal(await owner(), before);

  const other = scenario.startKsvm(["--max-qps", "15", "--apiserver-endpoints", second.url], viaSecond);
  await other.untilLine("progress", "error");
  const after = await owner();
  t.not(after, before, "the other run took over");
  const doneWhileAlone = doneBy(cutOff);
  first.start();
  await first.waitReady();

  const end = await cutOff.ended;
  t.equal(end.code, 1);
  t.equal(errorCodeOf(end), "OwnershipLost", end.stderr);
  t.equal(doneBy(end), doneWhileAlone, "it wrote nothing any more");
  t.notOk(end.lines.some(({ type }) => type === "pruned" || type === "unfrozen"));
  t.equal(await owner(), after, "the freeze of the other run is left alone");
  const otherEnd = await other.ended;
  t.equal(otherEnd.code, 0, otherEnd.stderr);
  await scenario.assertSoundEnd(t);
});
