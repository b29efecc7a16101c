import type { ControlPlane } from "../control-plane/control-plane.ts";
import { eventually } from "../integration/cluster.ts";
import { GROUP, type TestKind } from "../integration/crd-fixture.ts";

/** Writes that the second API server has under way while it stands still. */
export interface HeldWrites {
  readonly controlPlane: ControlPlane;
  readonly kind: TestKind;
  readonly count: number;
}

function pathOf(kind: TestKind): string {
  return `/apis/${GROUP}/v1alpha1/namespaces/default/${kind.plural}`;
}

/** Creates objects of the old version on the second API server, which answers when it goes on: with these statuses. */
export function createHeld(
  { controlPlane, count, kind }: HeldWrites,
  options: { readonly timeoutMs: number },
): Promise<readonly number[]> {
  const writes = kind.objects(count, "v1alpha1", "held").map(async (body) => {
    const request = { ...options, method: "POST", body, apiserver: 1 } as const;
    return (await controlPlane.request(pathOf(kind), request).catch(() => ({ status: 0 }))).status;
  });
  return Promise.all(writes);
}

/**
 * Opens a connection for each of those creates: one that has yet to be opened takes so long that they come too late.
 * @param calls how often the slow webhook was called
 */
export async function warmUp({ controlPlane, count, kind }: HeldWrites, calls: () => number): Promise<void> {
  await eventually(async () => {
    const body = kind.object("held-canary", "v1alpha1");
    await controlPlane.request(`${pathOf(kind)}?dryRun=All`, { method: "POST", body, apiserver: 1 });
    return calls() > 0;
  }, "the second API server calls the slow webhook");
  const get = (): Promise<unknown> => controlPlane.request(`${pathOf(kind)}?limit=1`, { apiserver: 1 });
  await Promise.all(Array.from({ length: count }, get));
}
