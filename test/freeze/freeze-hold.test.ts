import tap from "tap";
import { MIGRATING_ANNOTATION, MIGRATING_VALUE, OWNER_ANNOTATION } from "../../src/api/names.ts";
import { formatOwner, type FreezeOwner } from "../../src/api/owner.ts";
import { FreezeHold } from "../../src/freeze/freeze-hold.ts";
import { policyGuardOf } from "../../src/freeze/guard-install.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import type { Resource } from "../../src/kube/resources.ts";
import { Cleanup } from "../../src/retry/cleanup.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { ManualClock } from "../manual-clock.ts";

const OWNER: FreezeOwner = { lease: "kube-system/widgets", identity: "host_1", since: "2026-01-01T00:05:00Z" };

/** What an attempt undoes at its end, where the CRD and its policy have another owner by then. */
async function undone(by: Partial<FreezeOwner>): Promise<readonly string[]> {
  const did: string[] = [];
  const clock = new ManualClock();
  const crdName = crdWith().metadata.name;
  const owner = formatOwner({ ...OWNER, ...by });
  const annotations = { [MIGRATING_ANNOTATION]: MIGRATING_VALUE, [OWNER_ANNOTATION]: owner };
  const crd = crdWith({ metadata: { annotations } });
  // A stand-in: no real API server goes back in time between two requests.
  const client = {
    create: () => Promise.resolve({}),
    delete: ({ resource }: Resource) => Promise.resolve(did.push(`delete ${resource}`)),
    find: () => Promise.resolve({ metadata: { name: "p", uid: "u", resourceVersion: "1", annotations } }),
    get: () => Promise.resolve(crd),
    patch: (_resource: Resource, _ref: object, { body }: { body: typeof crd }) => {
      if (body.metadata.annotations?.[MIGRATING_ANNOTATION] === null) did.push("lift");
      return Promise.resolve(crd);
    },
  } as unknown as ApiClient;
  const context = { client, retrier: new Retrier({ clock, random: () => 0.5 }) };
  const cleanup = new Cleanup({ clock, emit: () => undefined });
  const hold = new FreezeHold({
    crdName,
    guard: policyGuardOf(crdName),
    owner: OWNER,
    releasing: context,
    cleanup,
    onLifted: () => did.push("told"),
    besides: {},
    undone: () => ({}),
  });
  await cleanup.after(() =>
    hold.take({ ...context, renew: () => Promise.resolve(), signal: new AbortController().signal }),
  );
  return did;
}

await tap.test("FreezeHold lifts what a restore of etcd brought back of an earlier attempt of its run", async (t) => {
  const all = ["lift", "told", "delete validatingadmissionpolicybindings", "delete validatingadmissionpolicies"];
  t.same(await undone({}), all);
  t.same(await undone({ since: "2026-01-01T00:00:00Z" }), all);
});

await tap.test("FreezeHold leaves what is another run's by now", async (t) => {
  t.same(await undone({ identity: "host_2" }), []);
});
