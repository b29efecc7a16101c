import t, { type Test } from "tap";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { assertNoTraces } from "../integration/assert-no-traces.ts";
import { type Balancer, balance } from "../integration/balancer.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { identityOfHost } from "./identity-lease.ts";
import { type KsvmLine, KsvmProcess } from "./ksvm-process.ts";
import { IS_LONG } from "./random.ts";

const HOST = "control-plane-2";
// Host names of their own, and so an identity Lease each.
const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [{ hostname: "control-plane-1" }, { hostname: HOST }],
});
const { api, controlPlane } = cluster;
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) {
  throw new Error("two API servers were asked for");
}
const BOTH = [first.url, second.url];
t.teardown(() => second.resume());

/** What the API server hangs in the middle of, and how a run gets there. */
interface Phase {
  readonly word: string;
  readonly objects: number;
  readonly flags: readonly string[];
  readonly isReached: (run: KsvmProcess) => boolean;
}

const SLOWLY = ["--settle", "1s", "--max-qps", "8", "--page-size", "50"];
const BEFORE_CONVERGENCE: Phase = {
  word: "converging",
  objects: 5,
  flags: ["--settle", "40s"],
  isReached: ({ lines }) => lines.some(({ type }) => type === "proven"),
};
const IN_THE_REWRITE: Phase = { word: "rewriting", objects: 300, flags: SLOWLY, isReached: isDone(20) };
const BEFORE_THE_PRUNE: Phase = { word: "pruning", objects: 70, flags: SLOWLY, isReached: isDone(50) };

function isDone(count: number): (run: KsvmProcess) => boolean {
  return ({ lines }) => lines.some((line) => line.type === "progress" && line.counts.done > count);
}

await identityOfHost(api, "control-plane-1");
const identity = await identityOfHost(api, HOST);

async function start(t: Test, { flags, isReached, objects, word }: Phase, balancer: Balancer) {
  const kind = new TestKind(word);
  await cluster.createStale(kind, objects);
  const run = new KsvmProcess(t, balancer.kubeconfig, [kind.name, ...flags]);
  const reached = eventually(async () => isReached(run), `${word} is reached`, 300_000);
  return { kind, run, reached, word };
}

function isAboutIt(line: KsvmLine): boolean {
  return line.type !== "error" && JSON.stringify(line).includes(identity);
}

function isFrozen({ kind }: { readonly kind: TestKind }): Promise<boolean> {
  return cluster.crd(kind).then(hasFreezeAnnotation);
}

/** What the load balancer does with the connections to an API server that it takes out, which the short version does not vary. */
const HOW = [
  ["SIGSTOP, in mid-run, of an API server that discovery alone shows: its connections stay open", "keep"],
  ["SIGSTOP, in mid-run, of an API server that discovery alone shows: its connections are reset", "reset"],
] as const;

for (const [title, how] of IS_LONG ? HOW : HOW.slice(0, 1)) {
  await t.test(title, async (t) => {
    const balancer = await balance(t, controlPlane, BOTH);
    // Before convergence a run asks each API server on a connection of its own: to both of these it is the same.
    const converging = how === "keep" && IS_LONG ? [await start(t, BEFORE_CONVERGENCE, balancer)] : [];
    await Promise.all(converging.map(({ reached }) => reached));
    const others = await Promise.all([start(t, IN_THE_REWRITE, balancer), start(t, BEFORE_THE_PRUNE, balancer)]);
    const runs = [...converging, ...others];
    await Promise.all(runs.map(({ reached }) => reached));
    second.pause();
    balancer.use(BOTH.slice(0, 1), how);
    t.notOk((await Promise.all(runs.map(isFrozen))).includes(false), "all of them are under way");

    await eventually(
      async () => runs.every(({ run }) => run.lines.some(isAboutIt)),
      "each run says which API server it may have to wait for",
      90_000,
    );
    await eventually(
      async () => (await Promise.all(runs.map(isFrozen))).every((frozen) => !frozen),
      "none of them holds a freeze",
      240_000,
    );
    for (const { kind, run, word } of runs) {
      await eventually(async () => run.lines.some(({ type }) => type === "waiting"), `${word} waits`, 180_000);
      t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"], `${word}: nothing is pruned`);
    }
    second.resume();
    balancer.use(BOTH);
    for (const { kind, run } of runs) {
      const { code, stderr } = await run.ended;
      t.equal(code, 0, stderr);
      t.same(Object.keys(await cluster.storedAs(kind)), ["v1"]);
      t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
      await assertNoTraces(t, cluster, kind);
    }
  });
}
