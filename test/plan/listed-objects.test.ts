import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { listedObjects } from "../../src/plan/listed-objects.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { ManualClock } from "../manual-clock.ts";

const EMPTY = "storage is (re)initializing";
const LOST = "failed to decode: from an invalid group/version: example.com/v1alpha1, Kind=Widget";

function refusal(message: string, status: number): ApiError {
  return new ApiError("GET widgets", status, { answer: { kind: "Status", message } });
}

/**
 * A stand-in for an API server of Kubernetes 1.31 or 1.32 whose cache cannot be filled, as it is seen there: a list with a selector
 * would come from the cache, and one with a limit alone comes from etcd, page by page. `make test-kubernetes` runs check and doctor on real ones.
 */
async function listed(pages: readonly (string | undefined)[], nextOf = (page: number) => page + 1): Promise<unknown> {
  const { signal } = new AbortController();
  const client = {
    listMetadata: async (_: unknown, query: { labelSelector?: string; limit: number; continueToken?: string }) => {
      if (query.labelSelector !== undefined) throw refusal(EMPTY, 429);
      if (query.limit === 1) return { items: [{}], metadata: { remainingItemCount: 2 } };
      const page = Number(query.continueToken ?? 0);
      const problem = pages[page];
      if (problem !== undefined) throw refusal(problem, 500);
      const next = nextOf(page);
      return { items: [{}], metadata: next < pages.length ? { continue: String(next) } : {} };
    },
  } as unknown as ApiClient;
  const clock = new ManualClock();
  const retrier = new Retrier({ clock, random: () => 0.5, maxIdleMs: 5_000 });
  const found = listedObjects({ client, retrier, signal }, crdWith({}));
  for (let second = 0; second < 10; second++) await clock.advance(1_000);
  return found;
}

await tap.test(
  "listedObjects() finds an object that cannot be read where the API server has no cache to list from",
  async (t) => {
    t.match(await listed([undefined, LOST]), { count: 3, problem: LOST, unreadableIn: "v1alpha1" });
  },
);

await tap.test("listedObjects() finds nothing wrong where every page can be read", async (t) => {
  t.same(await listed([undefined, undefined, undefined]), { count: 3 });
});

await tap.test("listedObjects() ends where the pages go in a circle", async (t) => {
  let looks = 0;
  const nextOf = (page: number): number => {
    if (++looks > 100) throw refusal("the list was read on", 500);
    return page === 1 ? 2 : 1;
  };
  t.match(await listed([undefined, undefined, undefined], nextOf), { count: 3, problem: /the list never ends/ });
});

await tap.test(
  "listedObjects() believes no conversion webhook that an object is in a version that is lost",
  async (t) => {
    const said = `conversion webhook for example.com/v2, Kind=Widget failed: ${LOST}`;
    const found = await listed([said]);
    t.match(found, { count: 3, problem: said });
    t.notOk(Object.hasOwn(found as object, "unreadableIn"));
  },
);
