import tap from "tap";
import { SUSPEND_LEASE } from "../../src/api/migration.ts";
import { SUSPEND_ALL_ANNOTATION } from "../../src/api/names.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest, Transport } from "../../src/kube/transport.ts";
import { setSuspendMark } from "../../src/suspend/suspend-mark.ts";

interface Lease {
  readonly metadata: { readonly name: string; readonly uid: string; readonly annotations?: Record<string, string> };
}

const MARKED = { [SUSPEND_ALL_ANNOTATION]: "2026-01-01T00:00:00Z" };

function leaseWith(annotations: Record<string, string>): Lease {
  return { metadata: { name: SUSPEND_LEASE, uid: "u", annotations } };
}

function refuse(status: number, reason: string): ApiError {
  return new ApiError("WRITE", status, { answer: { kind: "Status", reason, details: { name: SUSPEND_LEASE } } });
}

/** One Lease, which another client writes before the request of each number. */
function standIn(before: Lease | undefined, others: Readonly<Record<number, Lease | undefined>>) {
  let lease = before;
  let requests = 0;
  const request = async ({ method, body }: ApiRequest): Promise<{ body: unknown }> => {
    requests++;
    lease = requests in others ? others[requests] : lease;
    if (method === "GET") {
      return {
        body: { kind: "LeaseList", metadata: { resourceVersion: "1" }, items: lease === undefined ? [] : [lease] },
      };
    }
    if (method === "POST" && lease !== undefined) throw refuse(409, "AlreadyExists");
    if (method === "PATCH" && lease === undefined) throw refuse(404, "NotFound");
    lease = leaseWith((body as Lease).metadata.annotations ?? {});
    return { body: lease };
  };
  const client = new ApiClient({ server: "https://stand-in", request } as unknown as Transport);
  return { client, isMarked: () => lease?.metadata.annotations?.[SUSPEND_ALL_ANNOTATION] !== undefined };
}

// A stand-in: the other client has to come between two requests.
await tap.test("setSuspendMark() sets the mark also while others take it away", async (t) => {
  const wanted = { namespace: "ns", mark: { since: "2026-02-01T00:00:00Z", by: "me" } };
  for (const [what, before, others, isNew] of [
    ["nobody else", undefined, {}, true],
    ["it is there", leaseWith(MARKED), {}, false],
    ["a Lease without a mark", leaseWith({}), {}, true],
    ["suspended by another client in between", undefined, { 2: leaseWith(MARKED) }, false],
    ["suspended and resumed by other clients in between", undefined, { 2: leaseWith(MARKED), 3: undefined }, true],
    ["resumed by another client in between", leaseWith(MARKED), { 2: undefined }, false],
    ["a Lease without a mark is deleted in between", leaseWith({}), { 2: undefined }, true],
  ] as const) {
    const api = standIn(before, others);
    t.equal(await setSuspendMark(api.client, wanted), isNew, what);
    t.ok(api.isMarked(), `${what}: it is in force`);
  }
  const names = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [index * 2 + 2, leaseWith({})]));
  const gone = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [index * 2 + 1, undefined]));
  const contended = standIn(undefined, { ...names, ...gone });
  await t.rejects(setSuspendMark(contended.client, wanted), { code: "Conflict" });
});
