import tap from "tap";
import { MIGRATING_ANNOTATION, MIGRATING_VALUE, OWNER_ANNOTATION } from "../../src/api/names.ts";
import { formatOwner, type FreezeOwner } from "../../src/api/owner.ts";
import { KsvmError } from "../../src/errors.ts";
import { freeze, type HolderContext } from "../../src/freeze/freeze.ts";
import { installGuard, policyGuardOf } from "../../src/freeze/guard-install.ts";
import { removeLeftovers, tryRemoveLeftovers } from "../../src/freeze/leftovers.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { Resource } from "../../src/kube/resources.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";

const OWNER: FreezeOwner = { lease: "kube-system/widgets", identity: "host_1", since: "2026-01-01T00:05:00Z" };
const ANOTHER = { ...OWNER, identity: "host_2" };
const CRD = crdWith().metadata.name;
const [CRDS, POLICIES, BINDINGS] = [
  "customresourcedefinitions",
  "validatingadmissionpolicies",
  "validatingadmissionpolicybindings",
];

type Work = (context: HolderContext) => Promise<unknown>;
const WAYS: Readonly<Record<string, Work>> = {
  freeze: (context) => freeze(context, CRD, OWNER),
  installGuard: (context) => installGuard(context, { crdName: CRD, guard: policyGuardOf(CRD) }, OWNER),
  removeLeftovers: (context) => removeLeftovers(context, CRD, OWNER.lease),
};

/** What is done, in order, where the CRD is frozen by this owner, and its policy and binding are there and belong to it. */
async function doneBy(work: Work, { owner, isLost = false }: { owner?: FreezeOwner; isLost?: boolean }) {
  const did: string[] = [];
  const annotations: Record<string, string> =
    owner === undefined ? {} : { [MIGRATING_ANNOTATION]: MIGRATING_VALUE, [OWNER_ANNOTATION]: formatOwner(owner) };
  const metadata = { name: "p", uid: "u", resourceVersion: "1", annotations };
  const doing =
    <T>(what: string, answer: T) =>
    async ({ resource }: Resource): Promise<T> => {
      did.push(`${what} ${resource}`);
      return answer;
    };
  // A stand-in: on a real API server no moment between a read and a write can be chosen.
  const client = {
    create: async ({ resource }: Resource) => {
      if (owner !== undefined) throw new ApiError("create p", 409, {});
      did.push(`create ${resource}`);
    },
    delete: doing("delete", undefined),
    find: doing("read", owner && { metadata }),
    get: doing("read", crdWith({ metadata: { annotations } })),
    patch: doing("write", crdWith()),
  } as unknown as ApiClient;
  const renew = async (): Promise<void> => {
    did.push("renew");
    if (isLost) throw new KsvmError("OwnershipLost", "another run holds the Lease");
  };
  const retrier = new Retrier({ clock: new FakeClock(), random: () => 0.5 });
  const { signal } = new AbortController();
  const code = await work({ client, renew, retrier, signal }).then(
    () => "done",
    (error: unknown) => (error instanceof KsvmError ? error.code : error),
  );
  return { did, code };
}

await tap.test("the Lease is renewed between a read of what another run left on it and the write", async (t) => {
  const wanted: Readonly<Record<string, readonly string[]>> = {
    freeze: [`read ${CRDS}`, "renew", `write ${CRDS}`],
    installGuard: [POLICIES, BINDINGS].flatMap((one) => [`read ${one}`, "renew", `write ${one}`]),
    // A second read of the CRD is that of the write, a third one says what it is like then.
    removeLeftovers: [
      `read ${CRDS}`,
      "renew",
      `read ${CRDS}`,
      `write ${CRDS}`,
      `read ${BINDINGS}`,
      `read ${POLICIES}`,
      "renew",
      `delete ${BINDINGS}`,
      "renew",
      `delete ${POLICIES}`,
      `read ${CRDS}`,
    ],
  };
  for (const [way, work] of Object.entries(WAYS)) {
    t.same(await doneBy(work, { owner: ANOTHER }), { did: wanted[way], code: "done" }, way);
  }
});

await tap.test("what another run left is left alone where that run holds the Lease by now", async (t) => {
  for (const [way, work] of Object.entries(WAYS)) {
    const { did, code } = await doneBy(work, { owner: ANOTHER, isLost: true });
    t.equal(code, "OwnershipLost", way);
    t.same([did.length, did.at(-1)], [2, "renew"], `${way} writes nothing`);
  }
});

await tap.test("no renewal is needed where nothing of another run is there", async (t) => {
  for (const [way, work] of Object.entries(WAYS)) {
    const { did, code } = await doneBy(work, {});
    t.equal(code, "done", way);
    t.notOk(did.includes("renew"), `${way} finds nothing`);
  }
  const earlier = { ...OWNER, since: "2026-01-01T00:00:00Z" };
  for (const way of ["freeze", "installGuard"]) {
    const { did, code } = await doneBy(WAYS[way] as Work, { owner: earlier });
    t.equal(code, "done", way);
    t.notOk(did.includes("renew"), `${way} finds what an earlier attempt of its own run left`);
  }
});

await tap.test(
  "tryRemoveLeftovers() touches nothing of a run on another Lease, and nothing that is not there",
  async (t) => {
    const work =
      (owner: FreezeOwner | undefined): Work =>
      (context) =>
        tryRemoveLeftovers(context, { crdName: CRD, lease: "default/widgets", owner }, () =>
          t.fail("it did something"),
        );
    t.same(await doneBy(work(OWNER), { owner: OWNER }), { did: [], code: "done" });
    t.same(await doneBy(work(undefined), {}), { did: [], code: "done" });
  },
);

await tap.test("tryRemoveLeftovers() does as removeLeftovers(), and goes on where that does not work", async (t) => {
  const failures: unknown[] = [];
  const options = { crdName: CRD, lease: OWNER.lease, owner: ANOTHER };
  const work: Work = (context) => tryRemoveLeftovers(context, options, (error) => failures.push(error));
  const wanted = await doneBy((context) => removeLeftovers(context, CRD, OWNER.lease), { owner: ANOTHER });
  t.same(await doneBy(work, { owner: ANOTHER }), wanted);
  t.equal((await doneBy(work, { owner: ANOTHER, isLost: true })).code, "OwnershipLost");
  t.same(failures, []);
  const denied: Work = (context) =>
    work({ ...context, renew: () => Promise.reject(new ApiError("write", 403, { text: "no" })) });
  t.equal((await doneBy(denied, { owner: ANOTHER })).code, "done");
  t.match(failures, [{ status: 403 }]);
});
