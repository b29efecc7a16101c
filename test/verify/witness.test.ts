import tap from "tap";
import type { ObjectMeta } from "../../src/api/meta.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { type ListedObject, listedObjectOf } from "../../src/kube/listed-object.ts";
import type { Transport } from "../../src/kube/transport.ts";
import type { NotCurrent } from "../../src/migrator/events.ts";
import { StartAgain } from "../../src/retry/start-again.ts";
import { mayHaveWritten, Witness } from "../../src/verify/witness.ts";

// No API server is asked: a real one cannot be made to lose an answer to a write that it has stored, on demand.

const RESOURCE = { group: "example.com", version: "v1", resource: "widgets", kind: "Widget" };
const SIGNAL = new AbortController().signal;
const LOST = new TransportError("PATCH", "https://a", new Error("socket hang up"));

function object(resourceVersion: string, fields: Partial<ObjectMeta> = {}): ListedObject {
  const metadata = { name: "a", namespace: "ns", uid: "uid-a", resourceVersion, ...fields };
  return listedObjectOf(Buffer.from(JSON.stringify({ metadata })));
}

/** Has a witness send these writes, one after the other, each with its answer. */
async function witnessOf(writes: readonly (readonly [sent: ListedObject, answer: ListedObject | Error])[]) {
  const told: NotCurrent[] = [];
  const witness = new Witness((found) => told.push(found));
  for (const [sent, answer] of writes) {
    const readBytes = async ({ onSend }: ApiRequest): Promise<unknown> => {
      // As a transport does, whose fence throws before anything is sent.
      if (!(answer instanceof StartAgain)) {
        onSend?.();
      }
      if (answer instanceof Error) {
        throw answer;
      }
      return { body: answer };
    };
    const transport = { server: "https://a", readBytes } as unknown as Transport;
    await witness.write(transport, RESOURCE, sent, { signal: SIGNAL }).catch(() => undefined);
  }
  return { witness, told };
}

const NAMED = { namespace: "ns", name: "a", server: "https://a" };

await tap.test("Witness names an object whose resourceVersion a write changed", async (t) => {
  const { told, witness } = await witnessOf([[object("5"), object("9")]]);
  t.equal(witness.count, 1);
  t.same(told, [NAMED]);
  t.same(witness.named, told);
});

await tap.test(
  "Witness does not name an object whose resourceVersion stayed, nor one of a refused write",
  async (t) => {
    const conflict = new ApiError("PATCH", 409, { text: "the object has been modified" });
    const { witness } = await witnessOf([
      [object("5"), object("5")],
      [object("5"), conflict],
      [object("7"), object("7")],
    ]);
    t.equal(witness.count, 0, "another client wrote it at 7");
  },
);

await tap.test("Witness names an object that changed after a write without an answer", async (t) => {
  const { told } = await witnessOf([
    [object("5"), LOST],
    [object("5"), LOST],
    [object("9"), object("9")],
    [object("9"), object("9")],
  ]);
  t.same(told, [{ ...NAMED, doubt: "no answer" }], "once: what was written is current now");
  const { witness } = await witnessOf([
    [object("5"), LOST],
    [object("5"), object("5")],
  ]);
  t.equal(witness.count, 0, "an object that is as it was before was not written");
});

await tap.test("Witness does not say that a write got no answer that a fence did not let pass", async (t) => {
  const changed = new StartAgain("NotConverged", "its spec.versions changed");
  const { witness } = await witnessOf([
    [object("5"), changed],
    [object("9"), object("9")],
  ]);
  t.equal(witness.count, 0);
});

await tap.test("Witness says where admission changed the object as well", async (t) => {
  const { told } = await witnessOf([[object("5"), object("9", { labels: { stamp: "1" } })]]);
  t.same(told, [{ ...NAMED, doubt: "changed by admission" }]);
});

await tap.test("Witness says where the write emptied managedFields", async (t) => {
  const managedFields = [{ manager: "kubectl", apiVersion: "example.com/v0" }] as unknown as NonNullable<
    ObjectMeta["managedFields"]
  >;
  const { told } = await witnessOf([[object("5", { managedFields }), object("9")]]);
  t.same(told, [{ ...NAMED, doubt: "managedFields emptied" }]);
});

await tap.test("Witness names a hundred objects and counts all", async (t) => {
  const writes = Array.from({ length: 101 }, (_, index) => [object("5", { uid: `u${index}` }), object("9")] as const);
  const { told, witness } = await witnessOf(writes);
  t.equal(witness.count, 101);
  t.equal(witness.named.length, 100);
  t.equal(told.length, 100);
});

function answered(status: number, message: string): ApiError {
  return new ApiError("PATCH", status, { answer: { kind: "Status", message } });
}

await tap.test("mayHaveWritten() is false where the API server refused", async (t) => {
  t.ok(mayHaveWritten(LOST));
  t.ok(mayHaveWritten(new DOMException("aborted", "AbortError")));
  t.ok(mayHaveWritten(answered(504, "context deadline exceeded")));
  t.ok(mayHaveWritten(answered(500, "etcdserver: request timed out")));
  t.notOk(mayHaveWritten(answered(409, "the object has been modified")));
  t.notOk(mayHaveWritten(answered(429, "too many requests")));
  t.notOk(mayHaveWritten(answered(500, 'Internal error occurred: failed calling webhook "a.b": EOF')));
  t.notOk(mayHaveWritten(answered(500, 'admission webhook "a.b" denied the request: no')));
});

await tap.test("Witness takes no dry run for a write", async (t) => {
  const told: NotCurrent[] = [];
  const witness = new Witness((found) => told.push(found));
  let answer: ListedObject | Error = LOST;
  const readBytes = async ({ onSend }: ApiRequest): Promise<unknown> => {
    onSend?.();
    if (answer instanceof Error) throw answer;
    return { body: answer };
  };
  const transport = { server: "https://a", readBytes } as unknown as Transport;
  const send = (sent: ListedObject, dryRun: boolean): Promise<unknown> =>
    witness.write(transport, RESOURCE, sent, { dryRun, signal: SIGNAL }).catch(() => undefined);
  await send(object("5"), true);
  answer = object("7");
  await send(object("7"), false);
  t.equal(witness.count, 0, "a dry run without an answer");
  answer = LOST;
  await send(object("7"), false);
  answer = object("7");
  await send(object("7"), true);
  answer = object("9");
  await send(object("9"), false);
  t.same(told, [{ ...NAMED, doubt: "no answer" }], "the answer to a dry run says nothing of an earlier write");
});
