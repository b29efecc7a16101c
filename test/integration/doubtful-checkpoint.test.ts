import t, { type Test } from "tap";
import type { Lease } from "../../src/api/lease.ts";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { KsvmError } from "../../src/errors.ts";
import { LEASES, MERGE_PATCH } from "../../src/kube/resources.ts";
import { leaseNameOf } from "../../src/lease/lease-acquire.ts";
import { CHECKPOINT_ANNOTATION } from "../../src/lease/run-lease.ts";
import { decodeStored } from "../control-plane/decode-stored.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { balanceRequests } from "./http-balancer.ts";
import { parallel } from "./parallel.ts";

const OBJECTS = 20;
const FLAGS = ["--max-qps", "10", "--page-size", "5", "--max-freeze-idle", "2s"];
const DISCOVERY = `/apis/${GROUP}/v1`;
const UNAVAILABLE = {
  status: 503,
  body: JSON.stringify({ kind: "Status", apiVersion: "v1", status: "Failure", message: "later", code: 503 }),
};

const cluster = await Cluster.start(t);

/** What comes from the stand-in in place of the API server, from when on. */
interface Lag {
  /** Whether the next answer of discovery is the old one. */
  isDue: boolean;
  hasShown: boolean;
  discoveryFails: boolean;
  leaseFails: boolean;
  /** Whether all requests are passed on from now on. */
  isOver: boolean;
  /** How many objects the run has written. */
  writes: number;
}

/**
 * A stale CRD, and a proxy before the API server that shows the discovery document of before the storage change, as an API
 * server that lags does. A real API server follows a CRD within moments and cannot be held back, and cannot be made to fall
 * behind in the moment before the prune. The old document is the one that the real API server gave. The object that such an
 * API server writes in the old version is put into etcd as it would have left it there.
 * @param options `atStart`: it is shown when the test says so, not before the prune. `lasts`: the old document is the answer from then on. `writesFail`: so do the writes of the Lease from then on.
 *   @default the old document is shown once, and then discovery fails
 */
async function lagging(
  t: Test,
  word: string,
  options: {
    readonly lasts?: boolean;
    readonly writesFail?: boolean;
    readonly atStart?: boolean;
    readonly onShown?: () => Promise<void>;
    readonly inOldVersion?: string;
  } = {},
) {
  const kind = new TestKind(word);
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.createObjects(kind.resource("v1alpha1"), kind.objects(OBJECTS, "v1alpha1"));
  const old = JSON.stringify((await cluster.controlPlane.request(DISCOVERY)).body);
  t.match(old, kind.plural);
  await cluster.setVersions(kind, { storage: "v1" });
  const lag: Lag = {
    isDue: false,
    hasShown: false,
    discoveryFails: false,
    leaseFails: false,
    isOver: false,
    writes: 0,
  };
  const kubeconfig = await balanceRequests(t, cluster.controlPlane, () => 0, {
    instead: async (method, path) => {
      if (method === "PATCH" && path.includes(`/namespaces/default/${kind.plural}/`)) {
        lag.writes++;
      }
      if (lag.isOver) {
        return undefined;
      }
      if (method !== "GET") {
        return lag.leaseFails && path.includes(leaseNameOf(kind.name)) ? UNAVAILABLE : undefined;
      }
      if (path !== DISCOVERY) {
        return undefined;
      }
      if (lag.isDue || (options.atStart !== true && lag.writes >= OBJECTS)) {
        if (!lag.hasShown) {
          await writeInOldVersion(kind, options.inOldVersion ?? "w0");
        }
        if (!lag.hasShown || options.lasts === true) {
          await options.onShown?.();
          [lag.isDue, lag.hasShown, lag.discoveryFails] = [options.lasts === true, true, options.lasts !== true];
          lag.leaseFails = options.writesFail === true;
          return { status: 200, body: old };
        }
      }
      return lag.discoveryFails ? UNAVAILABLE : undefined;
    },
  });
  return { kind, lag, flags: [...FLAGS, "--kubeconfig", kubeconfig] };
}

async function writeInOldVersion(kind: TestKind, name: string): Promise<void> {
  const { stored } = cluster.controlPlane;
  const key = `/registry/${GROUP}/${kind.plural}/default/${name}`;
  const object = decodeStored((await stored.readKey(key))?.value ?? Buffer.of()) as object;
  const value = JSON.stringify({ ...object, apiVersion: `${GROUP}/v1alpha1` });
  await stored.writeKey(key, value);
}

async function checkpointOf(kind: TestKind): Promise<string | undefined> {
  const lease = await cluster.api.get<Lease>(LEASES, { namespace: "kube-system", name: leaseNameOf(kind.name) });
  return lease.metadata.annotations?.[CHECKPOINT_ANNOTATION];
}

/** Everything is in the new version, also what the lagging API server wrote after the watermark. */
async function assertMigrated(t: Test, kind: TestKind): Promise<void> {
  t.same(await cluster.storedAs(kind), { v1: OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
}

parallel("a run does not resume where an API server lagged once before the prune, and then failed", async (t) => {
  const { kind, lag, flags } = await lagging(t, "lastlag");
  const { code, stdout, stderr } = await cluster.migrate([kind.name, ...flags], {
    onStdout: (text) => {
      // The first attempt is broken off by then.
      lag.discoveryFails &&= !/lifted the freeze/.test(text);
    },
  });
  t.equal(code, 0, stderr);
  t.ok(lag.hasShown);
  t.notMatch(stdout, /resuming an earlier run/);
  await assertMigrated(t, kind);
});

parallel("a run does not resume an earlier one where an API server lagged once at its start", async (t) => {
  const { kind, lag, flags } = await lagging(t, "firstlag", { atStart: true });
  const interrupt = new AbortController();
  const ended = cluster.migrate([kind.name, ...flags], { signal: interrupt.signal });
  await eventually(async () => lag.writes >= 10, "a page or two are written", 120_000);
  interrupt.abort(new KsvmError("Interrupted", "enough"));
  const first = await ended;
  t.equal(first.code, 130, first.stderr);
  t.match(await checkpointOf(kind), /watermark/, "there is a checkpoint to resume at");
  const { code, stdout, stderr } = await cluster.migrate([kind.name, ...flags], {
    onStdout: (text) => {
      lag.isDue ||= !lag.hasShown && /proved the freeze/.test(text);
      lag.discoveryFails &&= !/lifted the freeze/.test(text);
    },
  });
  t.equal(code, 0, stderr);
  t.ok(lag.hasShown);
  t.notMatch(stdout, /resuming an earlier run/);
  await assertMigrated(t, kind);
});

parallel(
  "no client can bring back a checkpoint that became void in a run that another checkpoint is left of",
  async (t) => {
    const seen: string[] = [];
    const { kind, lag, flags } = await lagging(t, "broughtback", {
      atStart: true,
      // The last one: neither of the runs that are interrupted gets there.
      inOldVersion: "w9",
      onShown: async () => {
        // As a client that may read and write Leases finds it, signed by the run that is under way.
        seen.push((await checkpointOf(kind)) ?? "");
      },
    });
    const interrupted = async (writes: number, onStdout: (text: string) => void = () => undefined) => {
      const interrupt = new AbortController();
      const ended = cluster.migrate([kind.name, ...flags], { signal: interrupt.signal, onStdout });
      const isFarEnough = async (): Promise<boolean> => {
        lag.discoveryFails = false;
        return lag.writes >= writes;
      };
      await eventually(isFarEnough, "a page or two are written", 120_000);
      interrupt.abort(new KsvmError("Interrupted", "enough"));
      const { code, stderr } = await ended;
      t.equal(code, 130, stderr);
    };
    await interrupted(6);
    const before = lag.writes;
    await interrupted(before + 8, (text) => {
      lag.isDue ||= !lag.hasShown && /proved the freeze/.test(text);
    });
    t.match(seen[0], /watermark.*signature/, "the second run signed the checkpoint of the first one");
    t.match(await checkpointOf(kind), /watermark/, "and left one of its own");
    const annotations = { [CHECKPOINT_ANNOTATION]: seen[0] };
    const lease = { namespace: "kube-system", name: leaseNameOf(kind.name) };
    await cluster.api.patch(LEASES, lease, { type: MERGE_PATCH, body: { metadata: { annotations } } });
    lag.isOver = true;
    const { code, stdout, stderr } = await cluster.migrate([kind.name, ...flags]);
    t.equal(code, 0, stderr);
    t.notMatch(stdout, /resuming an earlier run/);
    await assertMigrated(t, kind);
  },
);

for (const [word, what, options] of [
  ["diedwaiting", "while it waits for an API server that lags", { lasts: true }],
  ["diedunwritten", "after the writes of its Lease failed for a while", { writesFail: true }],
] as const) {
  parallel(`no later process resumes where a run that saw an API server lag dies ${what}`, async (t) => {
    const { kind, lag, flags } = await lagging(t, word, options);
    const run = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", kind.name, ...flags]);
    await eventually(async () => lag.hasShown, "an API server lags right before the prune", 180_000);
    await eventually(
      async () => !lag.leaseFails || run.stdout.includes("lifted the freeze"),
      "it is broken off",
      120_000,
    );
    lag.leaseFails = false;
    await eventually(async () => (await checkpointOf(kind)) === "", "the checkpoint is taken back", 120_000);
    run.signal("SIGKILL");
    await run.ended;
    lag.isOver = true;
    const again = await cluster.migrate([kind.name, ...flags]);
    t.equal(again.code, 0, again.stderr);
    t.notMatch(again.stdout, /resuming an earlier run/);
    await assertMigrated(t, kind);
  });
}
