import tap from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import type { KubeObject } from "../../src/kube/client.ts";
import { MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";
import { shippedBy, startVersion } from "./versioned-keepers.ts";

const { api } = await Cluster.start(tap);
const REF = { name: WEBHOOK_NAME };
const FROM = { "cert-manager.io/inject-ca-from": "kube-storage-migration/ksvm-webhook" };

type Live = KubeObject & { readonly webhooks?: readonly object[] };

const live = (): Promise<Live | undefined> => api.find<Live>(WEBHOOK_CONFIGURATIONS, REF);
const change = (body: object): Promise<unknown> => api.patch(WEBHOOK_CONFIGURATIONS, REF, { type: MERGE_PATCH, body });

/** Returns once the keeper has read what is there: it restores what it reads. */
async function untilRestored(): Promise<Live> {
  await change({ webhooks: [] });
  await eventually(async () => (await live())?.webhooks?.length === 1, "the keeper has restored the webhook");
  return (await live()) ?? { metadata: {} };
}

await tap.test(
  "a configuration that is deleted comes back with the annotations of cert-manager's cainjector",
  async (t) => {
    // Without a caBundle, as where --certificates is secret or files.
    const keeper = startVersion(t, api, shippedBy(1, 5));
    await eventually(async () => (await live()) !== undefined, "the keeper has created it");
    await change({ metadata: { annotations: { ...FROM, "example.com/other": "x" } } });
    const { metadata: before } = await untilRestored();
    await api.delete(WEBHOOK_CONFIGURATIONS, REF);
    await eventually(async () => {
      const { annotations, uid } = (await live())?.metadata ?? {};
      return uid !== undefined && uid !== before.uid && Object.keys(annotations ?? {}).some((name) => name in FROM);
    }, "it is back with the annotation");
    const back = (await live())?.metadata.annotations;
    t.match(back, FROM);
    t.notHas(back, { "example.com/other": "x" }, "without other annotations of others");
    t.match(
      (await untilRestored()).metadata.annotations,
      FROM,
      "a restoration by server-side apply takes nothing away",
    );
    await keeper.end();
  },
);

await tap.test(
  "a configuration of a Helm release that is deleted comes back as the release's, and stays it",
  async (t) => {
    const OF_HELM = {
      labels: { "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": "ksvm" },
      annotations: { "meta.helm.sh/release-name": "ksvm", "meta.helm.sh/release-namespace": "kube-storage-migration" },
    };
    const keepers = [startVersion(t, api, shippedBy(1, 5)), startVersion(t, api, shippedBy(1, 5))];
    await eventually(async () => (await live()) !== undefined, "a keeper has created it");
    await change({ metadata: OF_HELM });
    const { metadata: before } = await untilRestored();
    t.match(before, OF_HELM);
    for (let round = 0; round < 3; round++) {
      const { uid } = (await live())?.metadata ?? {};
      await api.delete(WEBHOOK_CONFIGURATIONS, REF);
      const isBack = async (): Promise<boolean> => ![undefined, uid].includes((await live())?.metadata.uid);
      await eventually(isBack, "it is back");
      t.match((await live())?.metadata, OF_HELM, "from its first write on");
      t.match((await untilRestored()).metadata, OF_HELM);
    }
    for (const keeper of keepers) await keeper.end();
  },
);
