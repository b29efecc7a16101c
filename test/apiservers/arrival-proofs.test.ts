import tap from "tap";
import { ArrivalProofs } from "../../src/apiservers/arrival-proofs.ts";
import { UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import type { ApiClient } from "../../src/kube/client.ts";

/** Its waits end when a test says so. */
function setting() {
  const waits: PromiseWithResolvers<void>[] = [];
  const arrivals = {
    ...UNSEEN_ARRIVALS,
    count: 1,
    catchUp: () => {
      const wait = Promise.withResolvers<void>();
      waits.push(wait);
      return wait.promise;
    },
  };
  const proofs = new ArrivalProofs({ client: {} as ApiClient, signal: new AbortController().signal });
  const proven: string[] = [];
  const add = (name: string): void => proofs.add({ arrivals, count: arrivals.count }, () => proven.push(name));
  return { add, arrivals, proofs, proven, waits };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

await tap.test(
  "ArrivalProofs has what comes during a wait share the next one, which began after its last write",
  async (t) => {
    const { add, proofs, proven, waits } = setting();
    for (const name of ["a", "b", "c"]) add(name);
    t.equal(waits.length, 1);
    waits[0]?.resolve();
    await turn();
    t.same(
      proven,
      ["a"],
      "the wait of the first one began before the last write of the others, and proves nothing of them",
    );
    t.equal(waits.length, 2, "both others share one");
    waits[1]?.resolve();
    await proofs.ended();
    t.same(proven, ["a", "b", "c"]);
  },
);

await tap.test("ArrivalProofs proves nothing of a run in which an API server came or went", async (t) => {
  const { add, arrivals, proofs, proven, waits } = setting();
  add("a");
  arrivals.count++;
  waits[0]?.resolve();
  await proofs.ended();
  t.same(proven, []);
  add("b");
  waits[1]?.resolve();
  await proofs.ended();
  t.same(proven, ["b"], "one that began after it is proven");
});

await tap.test("ArrivalProofs proves nothing where it cannot be told who came and went", async (t) => {
  const { add, proofs, proven, waits } = setting();
  add("a");
  add("b");
  waits[0]?.reject(new Error("the watch lags behind"));
  await turn();
  waits[1]?.resolve();
  await proofs.ended();
  t.same(proven, ["b"]);
});
