import tap from "tap";
import { KsvmError } from "../../src/errors.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { CrdSights } from "../../src/trigger/crd-sights.ts";
import { Observer } from "../../src/trigger/observer.ts";
import { FakeClock } from "../fake-clock.ts";

const { signal } = new AbortController();

/** The requests for CRDs, of which there is one, in a cluster of which an API server cannot be found. */
function observerOf(sights: CrdSights, crds: { storedVersions: readonly string[]; isDenied?: boolean }) {
  const metadata = (): object => ({
    name: "widgets.example.com",
    uid: "u",
    generation: 1,
    resourceVersion: crds.storedVersions.join("-"),
  });
  const client = {
    listPage: () =>
      crds.isDenied === true
        ? Promise.reject(new KsvmError("Forbidden", "CRDs may not be listed"))
        : Promise.resolve({ items: [metadata()], resourceVersion: "1" }),
    findListed: () => Promise.resolve(metadata()),
    findFields: () =>
      Promise.resolve({
        metadata: metadata(),
        spec: {
          group: "example.com",
          names: { plural: "widgets", kind: "Widget" },
          scope: "Namespaced",
          versions: [
            { name: "v1", served: true, storage: false },
            { name: "v2", served: true, storage: true },
          ],
        },
        status: { storedVersions: crds.storedVersions },
      }),
  } as unknown as ApiClient;
  return new Observer({
    client,
    clock: new FakeClock(),
    excludedGroups: [],
    findApiServers: () => Promise.reject(new KsvmError("NotConverged", "an API server cannot be found")),
    sawCrds: (seen) => sights.sawAll(seen),
  });
}

// On real API servers one of them has to hang until another client has pruned a CRD that nobody saw before.
await tap.test("Observer tells of the CRDs that there are while discovery cannot be read", async (t) => {
  const sights = new CrdSights();
  const crds = { storedVersions: ["v1", "v2"] };
  const observer = observerOf(sights, crds);
  await t.rejects(observer.everything(signal), { code: "NotConverged" });
  crds.storedVersions = ["v2"];
  await t.rejects(observer.everything(signal), { code: "NotConverged" });
  const facts = { name: "widgets.example.com", uid: "u", generation: 2, storedVersions: ["v2"] };
  const seen = sights.saw(facts as unknown as Parameters<CrdSights["saw"]>[0]);
  t.same(seen.storedVersions, ["v1", "v2"], "another client has pruned it since");
});

await tap.test("Observer says why discovery cannot be read also where CRDs cannot be listed", async (t) => {
  const observer = observerOf(new CrdSights(), { storedVersions: ["v2"], isDenied: true });
  await t.rejects(observer.everything(signal), { code: "NotConverged" });
});

await tap.test("Observer tells of the CRD of one resource while discovery of its group cannot be read", async (t) => {
  const sights = new CrdSights();
  const crds = { storedVersions: ["v1", "v2"] };
  const observer = observerOf(sights, crds);
  await t.rejects(observer.resource("widgets.example.com", signal), { code: "NotConverged" });
  crds.storedVersions = ["v2"];
  await t.rejects(observer.everything(signal), { code: "NotConverged" });
  const facts = { name: "widgets.example.com", uid: "u", generation: 2, storedVersions: ["v2"] };
  const seen = sights.saw(facts as unknown as Parameters<CrdSights["saw"]>[0]);
  t.same(seen.storedVersions, ["v1", "v2"], "another client pruned it before the next look at everything");
});

await tap.test("Observer reads no CRD for a resource of the core group", async (t) => {
  const observer = observerOf(new CrdSights(), { storedVersions: ["v2"], isDenied: true });
  await t.rejects(observer.resource("pods", signal), { code: "NotConverged" });
});
