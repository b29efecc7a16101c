import { ACCEPT_METADATA, collectionPath, LEASES, objectPath, WEBHOOK_CONFIGURATIONS } from "../../../api-client.ts";
import { GROUP } from "../../../integration/crd-fixture.ts";
import type { Scenario } from "../play.ts";
import { apply, changeStorage, createObjects, createSubject, get, merge, post, remove, stateOf } from "../requests.ts";
import type { Answer, Json, LineRequest } from "../world.ts";

function watchOf(path: string, resourceVersion: string, more: LineRequest["query"] = {}): LineRequest {
  return get(path, { query: { allowWatchBookmarks: true, resourceVersion, timeoutSeconds: 290, ...more } });
}

const metadata = (object: Json): unknown => ({
  apiVersion: object.apiVersion,
  kind: object.kind,
  metadata: object.metadata,
});

export const watches: Scenario = {
  name: "watches",
  async play(play) {
    const shape = { storage: "v1alpha1" };
    const birds = await createSubject(play, "bird", shape);
    const all = birds.all("v1");
    const before = (await play.line("the list before", get(all))).body.metadata.resourceVersion;
    await createObjects(play, birds, "v1alpha1", ["a", "b"]);
    const since = await play.watch("watch from before", watchOf(all, before));
    await play.event("a was created", since);
    await play.event("b was created", since);
    const listed = (
      await play.line("the list now", get(all), {
        pick: ({ kind, metadata: { resourceVersion } }) => ({ kind, metadata: { resourceVersion } }),
      })
    ).body.metadata.resourceVersion;
    const one = await play.watch(
      "watch b alone, from the list",
      watchOf(birds.own("v1"), listed, { fieldSelector: "metadata.name=b" }),
    );
    const alone = await play.watch("watch metadata alone", { ...watchOf(all, listed), accept: ACCEPT_METADATA });
    await play.line("a changes", merge(birds.at("v1", "a"), { spec: { size: 2 } }));
    await play.line("b changes", merge(birds.at("v1", "b"), { metadata: { labels: { x: "y" } } }));
    await play.event("a was modified", since);
    await play.event("b was modified", since);
    await play.event("of b alone: b was modified", one);
    await play.event("as metadata: a was modified", alone);
    await play.line("a no-op write tells nothing", merge(birds.at("v1", "b"), { metadata: { labels: { x: "y" } } }));
    await play.line("b is deleted", remove(birds.at("v1", "b")));
    await play.event("b was deleted, at the revision of its deletion", since);
    await play.event("of b alone: it was deleted", one);
    await play.event("as metadata: b was modified", alone);
    await play.event("as metadata: b was deleted", alone);

    for (const watch of [since, one, alone]) watch.stop();
  },
};

/** What a watch sees of a change of the CRD: the API server begins a new watch cache for its objects. */
export const watchesAcrossChanges: Scenario = {
  name: "watches across a change of the CRD",
  async play(play) {
    const ponds = await createSubject(play, "pond", { storage: "v1alpha1" });
    await createObjects(play, ponds, "v1alpha1", ["a", "b"]);
    const first = stateOf(await play.line("a as it is", get(ponds.at("v1", "a"))));
    const listed = (
      await play.line("a list", get(ponds.all("v1")), {
        pick: ({ kind, metadata: { resourceVersion } }) => ({ kind, metadata: { resourceVersion } }),
      })
    ).body.metadata.resourceVersion;
    const open = await play.watch("a watch that is open", watchOf(ponds.all("v1"), listed));
    await changeStorage(play, ponds, { storage: "v1" });
    await play.event("it ends with the change", open);
    open.stop();
    const old = await play.watch(
      "a watch from an object's resourceVersion, which is older than the new watch cache",
      watchOf(ponds.all("v1"), first.resourceVersion),
    );
    await play.event("it is refused, as too old", old);
    old.stop();
    const again = (
      await play.line("the list after", get(ponds.all("v1")), {
        pick: ({ kind, metadata: { resourceVersion } }) => ({ kind, metadata: { resourceVersion } }),
      })
    ).body.metadata.resourceVersion;
    const fresh = await play.watch("a watch from the list after", watchOf(ponds.all("v1"), again));
    await play.line("create c", post(ponds.own("v1"), ponds.object("v1", "c")), { pick: metadata });
    await play.event("it tells of c", fresh, { pick: metadata });
    fresh.stop();
  },
};

const metadataAlone = { pick: ({ apiVersion, metadata }: Json) => ({ apiVersion, metadata }) };

/** Why a list taken after a storage change proves nothing by itself: see the section on late writes in the design. */
export const lateWrites: Scenario = {
  name: "late writes of an old version",
  async play(play) {
    const shape = { storage: "v1alpha1" };
    const boats = await createSubject(play, "boat", shape);
    await createObjects(play, boats, "v1alpha1", ["patched", "replaced"]);
    const held = new Map<string, () => void>();
    let isHeld = true;
    const client = await play.webhook("boats", async ({ request: { name, uid } }: Json) => {
      if (isHeld && name !== "probe") await new Promise<void>((resolve) => held.set(name, resolve));
      const response = name === "probe" ? { uid, allowed: false } : { uid, allowed: true };
      return { answer: { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response } };
    });
    const configuration = {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: boats.plural },
      webhooks: [
        {
          name: "own.example.com",
          clientConfig: client,
          rules: [
            { apiGroups: [GROUP], apiVersions: ["*"], resources: [boats.plural], operations: ["CREATE", "UPDATE"] },
          ],
          sideEffects: "None",
          admissionReviewVersions: ["v1"],
          timeoutSeconds: 30,
        },
      ],
    };
    await play.line("register a slow webhook", post(collectionPath(WEBHOOK_CONFIGURATIONS), configuration), {
      pick: () => "registered",
    });
    const probe = post(boats.own("v1alpha1"), boats.object("v1alpha1", "probe"), { dryRun: "All" });
    await play.wait("it is in force", probe, ({ status }) => status >= 400);

    const replaced = await play.line("replaced as it is", get(boats.at("v1alpha1", "replaced")), metadataAlone);
    const create = await play.begin(
      "a create that is held is stored in the version of its beginning",
      post(boats.own("v1"), boats.object("v1", "created")),
      metadataAlone,
    );
    const patch = await play.begin(
      "and so is a patch",
      merge(boats.at("v1", "patched"), { spec: { size: 2 } }),
      metadataAlone,
    );
    const noOp = apply(
      boats.at("v1", "replaced"),
      boats.identity("v1", { name: "replaced", namespace: "default", ...stateOf(replaced) }),
    );
    const rewrite = await play.begin("and a no-op write changes nothing by it", noOp, metadataAlone);
    await until(play.world.pause.bind(play.world), () => held.size === 3);
    await changeStorage(play, boats, { storage: "v1" });
    const listed = await play.line("a list in the meantime", get(boats.all("v1")), {
      pick: ({ items, kind, metadata: { resourceVersion } }) => ({
        kind,
        metadata: { resourceVersion },
        names: items.map(({ metadata }: Json) => metadata.name),
      }),
    });
    isHeld = false;
    const answers: Answer[] = [];
    for (const [name, { answer }] of Object.entries({ created: create, patched: patch, replaced: rewrite })) {
      held.get(name)?.();
      answers.push(await answer);
    }
    const watermark = BigInt(listed.body.metadata.resourceVersion);
    play.fact(
      "what lands late is beyond the list",
      answers.slice(0, 2).map(({ body }) => BigInt(body.metadata.resourceVersion) > watermark),
    );
    await play.line(
      "a write that begins now is stored in the new version",
      post(boats.own("v1"), boats.object("v1", "new")),
      metadataAlone,
    );
    await play.line("remove the webhook", remove(objectPath(WEBHOOK_CONFIGURATIONS, { name: boats.plural })));
  },
};

async function until(pause: (ms: number) => Promise<void>, isSo: () => boolean): Promise<void> {
  for (let tries = 0; !isSo(); tries++) {
    if (tries === 1_000) throw new Error("The writes did not reach the webhook");
    await pause(10);
  }
}

const NAMESPACE = "kube-system";
const at = (name: string): string => objectPath(LEASES, { namespace: NAMESPACE, name });

function lease(name: string, holder: string): Json {
  const time = "2026-01-02T03:04:05.678000Z";
  return {
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    metadata: { namespace: NAMESPACE, name, labels: { "app.kubernetes.io/managed-by": "ksvm" } },
    spec: { holderIdentity: holder, leaseDurationSeconds: 15, acquireTime: time, renewTime: time, leaseTransitions: 0 },
  };
}

const renewal = (state: object, spec: object, more: object = {}): Json => ({
  metadata: { ...state, ...more },
  spec,
});

export const leases: Scenario = {
  name: "Leases",
  async play(play) {
    const name = "ksvm-migrate.cups.example.com";
    const all = collectionPath(LEASES, NAMESPACE);
    await play.line("there is none", get(at(name)));
    const created = await play.line("create", post(all, lease(name, "one")));
    await play.line("create it again", post(all, lease(name, "two")));
    const renewTime = "2026-01-02T03:04:06.000000Z";
    const renewed = await play.line("renew", merge(at(name), renewal(stateOf(created), { renewTime })));
    await play.line(
      "renew with a stale resourceVersion",
      merge(at(name), renewal(stateOf(created), { renewTime: "2026-01-02T03:04:07.000000Z" })),
    );
    const annotated = await play.line(
      "renew with an annotation",
      merge(
        at(name),
        renewal(stateOf(renewed), { renewTime: "2026-01-02T03:04:08.000000Z" }, { annotations: { checkpoint: "x" } }),
      ),
    );
    const taken = await play.line(
      "take it over",
      merge(at(name), renewal(stateOf(annotated), { holderIdentity: "two", leaseTransitions: 1 })),
    );
    const released = await play.line("release it", merge(at(name), renewal(stateOf(taken), { holderIdentity: null })));
    await play.line("delete", remove(at(name), stateOf(released)));
    await play.line("renew what is gone", merge(at(name), renewal(stateOf(released), { renewTime })));
    await play.line("create it anew: another uid", post(all, lease(name, "two")));
    const listed = await play.line("a list by name", get(all, { query: { fieldSelector: `metadata.name=${name}` } }));
    const query = {
      allowWatchBookmarks: true,
      fieldSelector: `metadata.name=${name}`,
      resourceVersion: listed.body.metadata.resourceVersion,
      timeoutSeconds: 290,
    };
    const watch = await play.watch("a watch by name", get(all, { query }));
    await play.line("another Lease is created", post(all, lease(`${name}.other`, "one")));
    await play.line("this one is renewed", merge(at(name), { spec: { renewTime } }));
    await play.event("of this one alone it tells", watch);
    watch.stop();
  },
};
