import { storageVersionHashOf } from "../crd.ts";
import { resourcesOf } from "../api-client.ts";
import { typeMetaOf } from "../control-plane/stored-value.ts";
import { eventually } from "../integration/cluster.ts";
import { GROUP } from "../integration/crd-fixture.ts";
import type { Scenario } from "./scenario.ts";

/** What came of creates that were sent right after discovery showed the new storage version. */
export interface RaceOutcome {
  /** Creates that the API server took. */
  readonly created: number;
  /** Of those, how many etcd holds in the version before. */
  readonly old: number;
  /** How long after discovery, in milliseconds, the last one of those was sent; 0 where there is none. */
  readonly lastOldAfterMs: number;
}

const CREATES = 4;

/** Waits until discovery shows the hash of a storage version. It asks without a pause, as a hasty trigger would. */
export async function untilDiscoveryShows({ cluster, kind }: Scenario, version: string): Promise<void> {
  const hash = storageVersionHashOf(GROUP, version, kind.kind);
  const group = { group: GROUP, version: "v1" };
  await eventually(
    async () => {
      const resources = await resourcesOf(cluster.api, group).catch(() => []);
      return resources.find(({ name }) => name === kind.plural)?.storageVersionHash === hash;
    },
    `discovery shows ${version} as the storage version`,
    60_000,
    0,
  );
}

/**
 * Makes `version` the storage version, waits until discovery shows that, and creates objects at once: the handler may
 * still write the version before.
 * @see https://github.com/kubernetes/kubernetes/issues/130235
 */
export async function raceDiscovery(scenario: Scenario, version: "v1alpha1" | "v1", prefix: string) {
  const { cluster, kind } = scenario;
  await scenario.setStorage(version);
  await untilDiscoveryShows(scenario, version);
  const shownAt = performance.now();
  const outcome = { created: 0, old: 0, lastOldAfterMs: 0 };
  for (const object of kind.objects(CREATES, "v1", prefix)) {
    const sentAfterMs = performance.now() - shownAt;
    // A handler that is being replaced answers 429.
    const created = await cluster.api.create(kind.resource("v1"), object).catch(() => undefined);
    if (created === undefined) continue;
    outcome.created++;
    if ((await storedVersionOf(scenario, object.metadata.name ?? "")) === version) continue;
    outcome.old++;
    outcome.lastOldAfterMs = sentAfterMs;
  }
  return outcome satisfies RaceOutcome;
}

async function storedVersionOf({ cluster, kind }: Scenario, name: string): Promise<string> {
  const entry = await cluster.controlPlane.stored.readKey(`/registry/${GROUP}/${kind.plural}/default/${name}`);
  return entry === undefined ? "" : typeMetaOf(entry.value).apiVersion.slice(GROUP.length + 1);
}
