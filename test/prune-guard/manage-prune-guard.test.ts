import tap, { type Test } from "tap";
import { ApiClient, type KubeObject } from "../../src/kube/client.ts";
import { enablePruneGuard, pruneGuardStatus } from "../../src/prune-guard/manage-prune-guard.ts";
import { PRUNE_POLICY_NAMES } from "../../src/prune-guard/prune-policies.ts";
import type { CallContext } from "../../src/retry/call-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";
import { groupList, resourceList, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

type Stored = KubeObject & { readonly spec: Readonly<Record<string, unknown>> };

interface Disturbance {
  /** Whether each new spec of a policy is followed by a write of its status, as by kube-controller-manager. */
  readonly writesStatus?: boolean;
  /** Whether the answer to the first merge patch is lost. */
  readonly losesAnswer?: boolean;
}

const ADMISSION = "admissionregistration.k8s.io/v1";
const POLICY = `validatingadmissionpolicies/${PRUNE_POLICY_NAMES.unproven}`;
const BINDING = `validatingadmissionpolicybindings/${PRUNE_POLICY_NAMES.unproven}`;

/** What is stored, by `resource/name`. */
class Store {
  readonly objects = new Map<string, Stored>();
  #revision = 0;

  write(key: string, body: Stored, { isNoted }: { readonly isNoted: boolean }): Stored {
    const live = this.objects.get(key);
    const { metadata, spec } = body;
    const isChanged = JSON.stringify(spec) !== JSON.stringify(live?.spec);
    const resourceVersion = isChanged ? this.#next() : live?.metadata.resourceVersion;
    const written = { ...live, ...body, metadata: { ...live?.metadata, ...metadata, resourceVersion } } as Stored;
    const noted = { ...written, metadata: { ...written.metadata, resourceVersion: this.#next() } } as Stored;
    this.objects.set(key, isNoted && isChanged && key === POLICY ? noted : written);
    return written;
  }

  #next(): string {
    return String(++this.#revision);
  }
}

/** What another client adds to exempt CRDs. */
const EXEMPT = { paramKind: {}, paramRef: {} };

/** As an apply leaves it: what another client added stays. */
function applied(live: Stored | undefined, body: Stored): Stored {
  const kept = Object.entries(live?.spec ?? {}).filter(([name]) => Object.hasOwn(EXEMPT, name));
  return { ...body, spec: { ...body.spec, ...Object.fromEntries(kept) } };
}

/** As a merge patch leaves it. */
function merged(body: Stored): Stored {
  return { ...body, spec: Object.fromEntries(Object.entries(body.spec).filter(([, value]) => value !== null)) };
}

// A stand-in: on a real API server the other write falls between two requests only now and then, and no answer is lost.
async function contextOn(t: Test, store: Store, disturbance: Disturbance = {}): Promise<CallContext> {
  let isLost = disturbance.losesAnswer !== true;
  const server = await startServer(t, ({ body, headers, method, path }, response) => {
    if (path === "/apis") return sendJson(response, 200, groupList(ADMISSION));
    if (path === `/apis/${ADMISSION}`)
      return sendJson(response, 200, resourceList(ADMISSION, "validatingadmissionpolicies"));
    if (path.endsWith("/customresourcedefinitions"))
      return sendJson(response, 200, {
        kind: "CustomResourceDefinitionList",
        metadata: { resourceVersion: "1" },
        items: [],
      });
    const key = path.split("/").slice(-2).join("/");
    const live = store.objects.get(key);
    if (method === "GET" && live !== undefined) return sendJson(response, 200, live);
    if (method === "GET")
      return sendStatus(response, 404, { reason: "NotFound", details: { name: key.split("/")[1] ?? "" } });
    const isMerge = headers["content-type"]?.includes("merge-patch") === true;
    const patch = body as Stored;
    if (isMerge && patch.metadata.resourceVersion !== live?.metadata.resourceVersion)
      return sendStatus(response, 409, { reason: "Conflict", message: "the object has been modified" });
    const next = isMerge ? merged(patch) : applied(live, patch);
    const written = store.write(key, next, { isNoted: disturbance.writesStatus === true });
    if (isMerge && !isLost) {
      isLost = true;
      response.destroy();
      return;
    }
    sendJson(response, 200, written);
  });
  const retrier = new Retrier({ clock: new FakeClock(), random: () => 0.5 });
  return { client: new ApiClient(server.transport()), retrier, signal: new AbortController().signal };
}

const USER = "capi-manager";

for (const disturbance of [{}, { writesStatus: true }, { losesAnswer: true }]) {
  const title = `enablePruneGuard() replaces what exempts CRDs, with ${JSON.stringify(disturbance)}`;
  await tap.test(title, async (t) => {
    const store = new Store();
    await enablePruneGuard(await contextOn(t, store), { mode: "warn", allowedUsers: [] });
    for (const key of [POLICY, BINDING]) {
      const live = store.objects.get(key) as Stored;
      store.objects.set(key, { ...live, spec: { ...live.spec, ...EXEMPT } });
    }
    const context = await contextOn(t, store, disturbance);
    t.equal((await pruneGuardStatus(context)).state, "changed");
    await enablePruneGuard(context, { mode: "deny", allowedUsers: [USER] });
    const { allowedUsers, objects, state } = await pruneGuardStatus(context);
    t.same({ allowedUsers, objects, state }, { allowedUsers: [USER], objects: [], state: "deny" });
  });
}

for (const missing of [POLICY, BINDING]) {
  await tap.test(`pruneGuardStatus() tells the mode and the users where ${missing} alone is missing`, async (t) => {
    const store = new Store();
    const context = await contextOn(t, store);
    await enablePruneGuard(context, { mode: "deny", allowedUsers: [USER] });
    store.objects.delete(missing);
    const { allowedUsers, mode, objects, state } = await pruneGuardStatus(context);
    t.same(
      { allowedUsers, mode, objects, state },
      { allowedUsers: [USER], mode: "deny", objects: [missing], state: "changed" },
    );
  });
}

await tap.test("pruneGuardStatus() says that the guard is off where neither is there", async (t) => {
  const store = new Store();
  const context = await contextOn(t, store);
  await enablePruneGuard(context, { mode: "deny", allowedUsers: [USER] });
  store.objects.delete(POLICY);
  store.objects.delete(BINDING);
  const { mode, state } = await pruneGuardStatus(context);
  t.same({ mode, state }, { mode: undefined, state: "off" });
});
