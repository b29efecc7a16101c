import tap, { type Test } from "tap";
import type { ManagedFieldsEntry, ObjectMeta } from "../../../src/api/meta.ts";
import { listedObjectOf } from "../../../src/kube/listed-object.ts";
import { APPLY_PATCH, MERGE_PATCH } from "../../../src/kube/resources.ts";
import { FieldsConversion, fieldsReportOf } from "../../../src/migrator/rewrite/convert-fields.ts";
import { Tally } from "../../../src/migrator/rewrite/counts.ts";
import type { RewriteContext } from "../../../src/migrator/rewrite/rewrite-context.ts";
import { Pacer } from "../../../src/retry/pacer.ts";
import { Patience } from "../../../src/retry/patience.ts";
import { Retrier } from "../../../src/retry/retrier.ts";
import { FakeClock } from "../../fake-clock.ts";
import { sendJson, sendStatus, startServer } from "../../kube/local-server.ts";

// A real API server cannot be made to lose answers, or to do something else than it showed in a dry run.

const ENTRY: ManagedFieldsEntry = {
  manager: "operator",
  operation: "Update",
  apiVersion: "example.com/v1alpha1",
  time: "2026-01-01T00:00:00Z",
  fieldsV1: { "f:spec": {} },
};
const CONVERTED = [{ ...ENTRY, apiVersion: "example.com/v1" }];
const OBJECT: ObjectMeta = {
  name: "a",
  namespace: "ns",
  uid: "uid-a",
  resourceVersion: "50",
  generation: 2,
  managedFields: [ENTRY],
};

/** What an API server makes of a patch; it may fail it. */
interface Behaviour {
  /** The object at the start. @default OBJECT */
  readonly object?: ObjectMeta;
  /** Changes what a merge patch stores. */
  readonly alter?: (stored: ObjectMeta, isDryRun: boolean) => ObjectMeta;
  /** The status with which a merge patch is refused, by its number; `"lost"` is stored and answered 504. */
  readonly refuse?: (count: number) => number | "lost" | undefined;
  readonly dryRun?: boolean;
  readonly watermark?: string;
  /** The resourceVersion at which the object was listed. @default that which it has */
  readonly listedAt?: string;
}

async function convert(t: Test, behaviour: Behaviour) {
  const { alter = (stored) => stored, dryRun = false, refuse, watermark = "100" } = behaviour;
  let stored = behaviour.object ?? OBJECT;
  let patches = 0;
  /** How many requests there were when the conversion said that it had read an object again. */
  const objectsRead: number[] = [];
  const server = await startServer(t, ({ method, query, headers, body }, response) => {
    if (method === "GET") {
      const items = [{ metadata: stored }];
      return sendJson(response, 200, {
        kind: "PartialObjectMetadataList",
        metadata: { resourceVersion: "500" },
        items,
      });
    }
    const isDryRun = query.get("dryRun") === "All";
    const sent = (body as { metadata: ObjectMeta }).metadata;
    if (sent.resourceVersion !== stored.resourceVersion) {
      return sendStatus(response, 409, { reason: "Conflict", message: "the object has been modified" });
    }
    const isMerge = headers["content-type"] === MERGE_PATCH;
    const refusal = isMerge ? refuse?.(++patches) : undefined;
    if (typeof refusal === "number") {
      stored = refusal === 409 ? { ...stored, resourceVersion: `${Number(stored.resourceVersion) + 1}` } : stored;
      return sendStatus(response, refusal, { message: "refused" });
    }
    const patched = isMerge ? alter({ ...stored, managedFields: sent.managedFields ?? [] }, isDryRun) : stored;
    if (!isDryRun) {
      stored = { ...patched, resourceVersion: "101" };
    }
    return refusal === "lost"
      ? sendStatus(response, 504, { message: "no answer" })
      : sendJson(response, 200, { kind: "PartialObjectMetadata", metadata: isDryRun ? patched : stored });
  });
  const clock = new FakeClock();
  const startedAt = clock.monotonic();
  const context: RewriteContext = {
    transport: server.transport(),
    clock,
    retrier: new Retrier({ clock, random: () => 0.5, maxIdleMs: 300_000 }),
    patience: new Patience(),
    pacer: new Pacer({ clock, maxInFlight: 1, maxQps: Number.POSITIVE_INFINITY }),
    resource: { group: "example.com", version: "v1", resource: "widgets" },
    kind: "Widget",
    watermark,
    dryRun,
    reads: { pageRead: () => undefined, objectRead: async () => void objectsRead.push(server.seen.length) },
    signal: new AbortController().signal,
    waitSignal: new AbortController().signal,
  };
  const conversion = new FieldsConversion("example.com/v1");
  const { object: { resourceVersion } = OBJECT, listedAt = resourceVersion } = behaviour;
  const metadata = { ...(behaviour.object ?? OBJECT), resourceVersion: listedAt };
  const text = Buffer.from(JSON.stringify({ metadata }));
  const object = listedObjectOf(text, { fieldVersions: true });
  const { keptFields, ...outcome } = await conversion.rewrite(context, object);
  const tally = new Tally();
  tally.add(object, { ...outcome, ...(keptFields === undefined ? {} : { keptFields }) });
  const report = fieldsReportOf(conversion.converted, tally);
  const sent = server.seen.map(({ method, headers, query }) =>
    method === "GET"
      ? "list"
      : `${headers["content-type"] === APPLY_PATCH ? "apply" : "merge"}${query.get("dryRun") ?? ""}`,
  );
  return { objectsRead, outcome, report, sent, server, stored: () => stored, tookMs: clock.monotonic() - startedAt };
}

await tap.test(
  "FieldsConversion tries the write as a dry run, and sends it with uid and resourceVersion",
  async (t) => {
    const { outcome, report, sent, server, stored } = await convert(t, {});
    t.strictSame(outcome, { kind: "migrated", changed: false });
    t.same(sent, ["list", "mergeAll", "merge"]);
    for (const request of server.seen.slice(1)) {
      const metadata = { uid: "uid-a", resourceVersion: "50", managedFields: CONVERTED };
      t.strictSame(request.body, { kind: "Widget", metadata });
    }
    t.strictSame(stored().managedFields, CONVERTED);
    t.same(report, { converted: 1, kept: 0, keptObjects: [] });
  },
);

await tap.test("FieldsConversion stores nothing in a dry run", async (t) => {
  const { outcome, report, sent, stored } = await convert(t, { dryRun: true });
  t.strictSame(outcome, { kind: "migrated", changed: false });
  t.same(sent, ["list", "mergeAll"]);
  t.strictSame(stored(), OBJECT);
  t.equal(report.converted, 1);
});

await tap.test("FieldsConversion rewrites an object as usual that has nothing to convert", async (t) => {
  const { outcome, sent } = await convert(t, { object: { ...OBJECT, managedFields: CONVERTED } });
  t.match(outcome, { kind: "migrated" });
  t.same(sent, ["apply"]);
  const late = await convert(t, { object: { ...OBJECT, managedFields: CONVERTED }, watermark: "40" });
  t.same([late.outcome, late.sent], [{ kind: "newer" }, []]);
});

await tap.test("FieldsConversion converts an object beyond the watermark as well", async (t) => {
  const { outcome, report, stored } = await convert(t, { watermark: "40" });
  t.match(outcome, { kind: "migrated" });
  t.equal(report.converted, 1);
  t.strictSame(stored().managedFields, CONVERTED);
});

/** A write that a dry run showed meets another object. */
const replaced = (stored: ObjectMeta, isDryRun: boolean): ObjectMeta => ({
  ...stored,
  uid: isDryRun ? "uid-a" : "uid-b",
});

await tap.test("FieldsConversion takes an answer of another object for no proof, and writes it as usual", async (t) => {
  const { outcome, report, sent } = await convert(t, { alter: replaced });
  t.match(outcome, { kind: "gone" }, "a list by name shows another object");
  t.same(sent.slice(0, 4), ["list", "mergeAll", "merge", "apply"]);
  t.equal(report.converted, 0);
});

const ALTERED: readonly (readonly [string, (stored: ObjectMeta) => ObjectMeta])[] = [
  ["drops them", (stored) => ({ ...stored, managedFields: [] })],
  ["changes a time", (stored) => ({ ...stored, managedFields: CONVERTED.map((one) => ({ ...one, time: "now" })) })],
  ["changes the spec", (stored) => ({ ...stored, generation: 3 })],
  ["adds a label", (stored) => ({ ...stored, labels: { a: "b" } })],
];
for (const [words, alter] of ALTERED) {
  await tap.test(`FieldsConversion leaves managedFields as they are where the dry run ${words}`, async (t) => {
    const { outcome, report, sent, stored } = await convert(t, { alter });
    t.match(outcome, { kind: "migrated" }, "the object is rewritten as usual");
    t.same(sent, ["list", "mergeAll", "apply"]);
    t.strictSame(stored().managedFields, [ENTRY]);
    t.match(report, {
      converted: 0,
      kept: 1,
      keptObjects: [{ namespace: "ns", name: "a", reason: /a dry run shows/ }],
    });
  });
}

await tap.test("FieldsConversion tells of a change that the dry run did not show", async (t) => {
  const { outcome } = await convert(t, {
    alter: (stored, isDryRun) => (isDryRun ? stored : { ...stored, labels: {} }),
  });
  t.strictSame(outcome, { kind: "migrated", changed: true });
});

await tap.test("FieldsConversion reads an object again that another client writes, for some time", async (t) => {
  const once = await convert(t, { refuse: (count) => (count === 2 ? 409 : undefined) });
  t.same([once.outcome.kind, once.report.converted], ["migrated", 1]);
  t.same(once.sent, ["list", "mergeAll", "merge", "list", "mergeAll", "merge"]);
  const ever = await convert(t, { refuse: () => 409 });
  t.match(ever.report, { converted: 0, kept: 1 });
  t.strictSame(ever.stored().managedFields, [ENTRY]);
});

await tap.test(
  "FieldsConversion has the run look at the CRD before it writes an object that another client wrote since it was listed",
  async (t) => {
    const { objectsRead, sent } = await convert(t, { listedAt: "49" });
    t.same([objectsRead, sent], [[1], ["list", "mergeAll", "merge"]]);
    t.same((await convert(t, {})).objectsRead, [], "the look of the page is enough for any other");
    const conflict = await convert(t, { refuse: (count) => (count === 2 ? 409 : undefined) });
    t.same([conflict.objectsRead, conflict.sent[3]], [[4], "list"]);
  },
);

await tap.test("FieldsConversion counts a write whose answer was lost", async (t) => {
  const { outcome, report, stored } = await convert(t, { refuse: (count) => (count === 2 ? "lost" : undefined) });
  t.same(outcome, { kind: "newer" }, "a resourceVersion beyond the watermark proves it");
  t.equal(report.converted, 1);
  t.strictSame(stored().managedFields, CONVERTED);
});

await tap.test("FieldsConversion rewrites as usual where the patch is refused", async (t) => {
  const { outcome, report, sent } = await convert(t, { refuse: () => 400 });
  t.match(outcome, { kind: "migrated" });
  t.same(sent, ["list", "mergeAll", "apply"]);
  t.match(report, { converted: 0, kept: 1, keptObjects: [{ reason: "refused" }] });
});

await tap.test("FieldsConversion leaves an object to the usual rewrite whose patch keeps failing", async (t) => {
  const { outcome, report, stored, tookMs } = await convert(t, { refuse: () => 500 });
  t.strictSame(outcome, { kind: "migrated", changed: false });
  t.match(report, { converted: 0, kept: 1, keptObjects: [{ name: "a", reason: "refused" }] });
  t.strictSame(stored().managedFields, [ENTRY]);
  t.ok(tookMs < 60_000, `after ${tookMs} ms`);
  const twice = await convert(t, { refuse: (count) => (count <= 2 ? 500 : undefined) });
  t.match(twice.report, { converted: 1, kept: 0 }, "a fault that passes is nothing to give up for");
});
