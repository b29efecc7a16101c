import { LEASES, collectionPath, objectPath } from "../../../../src/kube/resources.ts";
import type { Json } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import { get, merge, post, remove, stateOf } from "../script-requests.ts";

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
    await play.line(
      "create in a namespace that is not there",
      post(collectionPath(LEASES, "nowhere"), { ...lease(name, "one"), metadata: { name, namespace: "nowhere" } }),
    );
    const created = await play.line("create", post(all, lease(name, "one")));
    await play.line("create it again", post(all, lease(name, "two")));
    const renewTime = "2026-01-02T03:04:06.000000Z";
    const renewed = await play.line("renew", merge(at(name), renewal(stateOf(created), { renewTime })));
    await play.line(
      "renew with a stale resourceVersion",
      merge(at(name), renewal(stateOf(created), { renewTime: "2026-01-02T03:04:07.000000Z" })),
    );
    await play.line(
      "renew with the same time: nothing is written",
      merge(at(name), renewal(stateOf(renewed), { renewTime })),
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
    await play.line(
      "the former holder renews",
      merge(at(name), renewal(stateOf(annotated), { renewTime: "2026-01-02T03:04:09.000000Z" })),
    );
    const released = await play.line("release it", merge(at(name), renewal(stateOf(taken), { holderIdentity: null })));
    await play.line(
      "renew as a dry-run",
      merge(at(name), renewal(stateOf(released), { holderIdentity: "three" }), { dryRun: "All" }),
    );
    await play.line("as it is", get(at(name)));
    await play.line("delete with a stale resourceVersion", remove(at(name), stateOf(taken)));
    await play.line(
      "delete with the uid of another one",
      remove(at(name), { uid: "11111111-2222-3333-4444-555555555555" }),
    );
    await play.line("delete", remove(at(name), stateOf(released)));
    await play.line("renew what is gone", merge(at(name), renewal(stateOf(released), { renewTime })));
    await play.line("create it anew: another uid", post(all, lease(name, "two")));
    await play.line(
      "renew what is of another uid",
      merge(at(name), renewal({ uid: stateOf(released).uid }, { renewTime })),
    );
    await play.line("a list by label", get(all, { query: { labelSelector: "app.kubernetes.io/managed-by=ksvm" } }));
    const suspend = {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { name: "ksvm-suspend", annotations: { since: "now" } },
      spec: { holderIdentity: null },
    };
    const mark = await play.line(
      "a Lease that nobody holds, as the one that suspends all migrations",
      post(all, suspend),
    );
    await play.line(
      "its annotation goes",
      merge(at("ksvm-suspend"), { metadata: { ...stateOf(mark), annotations: { since: null } } }),
      {
        pick: ({ metadata: { annotations, resourceVersion }, spec }) => ({
          spec,
          metadata: { annotations, resourceVersion },
        }),
      },
    );
    await play.line("it is deleted by its uid", remove(at("ksvm-suspend"), { uid: stateOf(mark).uid }));
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

export const identityLeases: Scenario = {
  name: "identity Leases of API servers",
  async play(play) {
    const query = { labelSelector: "apiserver.kubernetes.io/identity=kube-apiserver" };
    const request = get(collectionPath(LEASES, NAMESPACE), { query });
    // It is written a moment after the API server is ready.
    await play.wait("the Lease is there", request, ({ body }) => body.items.length > 0);
    await play.line("each API server has one", request, {
      pick: ({ items, kind }) => ({
        kind,
        items: items.map(({ metadata, spec }: Json) => ({
          hasName: /^apiserver-[a-z0-9]+$/.test(metadata.name),
          namespace: metadata.namespace,
          labels: {
            ...metadata.labels,
            "kubernetes.io/hostname": metadata.labels["kubernetes.io/hostname"] !== undefined,
          },
          creationTimestamp: metadata.creationTimestamp,
          isHeldByItself: typeof spec.holderIdentity === "string" && spec.holderIdentity.startsWith(metadata.name),
          leaseDurationSeconds: spec.leaseDurationSeconds,
          renewTime: spec.renewTime,
        })),
      }),
    });
    await play.line("the metrics tell when the process started", get("/metrics", { accept: "text/plain" }), {
      pick: (text: string) => /^process_start_time_seconds \d\S+$/m.test(text),
    });
  },
};
