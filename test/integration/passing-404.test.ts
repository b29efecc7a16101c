import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";
import { balanceRequests } from "./http-balancer.ts";
import { parallel } from "./parallel.ts";

// The API server is real. No real one answers 404 for what it serves, so the load balancer before it does.

const OBJECTS = 30;
const PAGE = "<html><body>404 Not Found</body></html>";

const cluster = await Cluster.start(t);

/** A stale CRD, and a kubeconfig by which a few requests that `isHit` picks are answered by the load balancer with 404. */
async function behindBalancer(t: Test, word: string, isHit: (method: string, path: string, nth: number) => boolean) {
  const kind = new TestKind(word);
  await cluster.createStale(kind, OBJECTS);
  const collection = `/apis/${GROUP}/v1/${kind.plural}`;
  const sent = { lists: 0, answered: 0 };
  const kubeconfig = await balanceRequests(t, cluster.controlPlane, () => 0, {
    instead: async (method, url) => {
      const path = url.split("?")[0] ?? "";
      if (method === "GET" && path === collection) sent.lists++;
      const named = path.replace(`/namespaces/default/${kind.plural}`, `/${kind.plural}`);
      if (!named.startsWith(collection) || !isHit(method, url, sent.lists)) return undefined;
      sent.answered++;
      return { status: 404, body: PAGE };
    },
  });
  return { kind, sent, flags: ["--kubeconfig", kubeconfig, "--page-size", "10"] };
}

async function assertMigrated(t: Test, kind: TestKind): Promise<void> {
  t.same(await cluster.storedAs(kind), { v1: OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertUnfrozen(t, cluster, kind);
}

for (const nth of [1, 3]) {
  parallel(`a load balancer's 404 to page ${nth} of the list costs one more try`, async (t) => {
    let isDue = true;
    const { kind, sent, flags } = await behindBalancer(t, "page404", (method, url, lists) => {
      const isPage = method === "GET" && !url.includes("fieldSelector");
      const isHit = isPage && isDue && lists === nth;
      isDue &&= !isHit;
      return isHit;
    });
    const { code, stderr } = await cluster.migrate([kind.name, ...flags]);
    t.equal(code, 0, stderr);
    t.equal(sent.answered, 1, "negative control: it was answered with 404");
    await assertMigrated(t, kind);
  });
}

parallel("a load balancer's 404 to an object, and then to the list by its name, costs one more try", async (t) => {
  const [object, list] = [{ due: 1 }, { due: 2 }];
  const { kind, sent, flags } = await behindBalancer(t, "object404", (method, url) => {
    if (method === "PATCH" && url.includes("/w7?")) return object.due-- > 0;
    return url.includes("fieldSelector=metadata.name%3Dw7") && list.due-- > 0;
  });
  const { code, stderr } = await cluster.migrate([kind.name, ...flags]);
  t.equal(code, 0, stderr);
  t.equal(sent.answered, 3, "negative control: each was answered with 404");
  await assertMigrated(t, kind);
});

parallel("a load balancer that answers 404 to every list ends the run when its budget is used up", async (t) => {
  const { kind, flags } = await behindBalancer(t, "all404", (method) => method === "GET");
  const { code, stderr } = await cluster.migrate([kind.name, ...flags, "--max-idle", "3s"]);
  t.equal(code, 1);
  t.match(stderr, /but it lists .* of example.com\/v1.*\[RetryBudgetExceeded\]/);
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
});
