import tap from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { failureKindOf } from "../../src/kube/failure.ts";
import type { Fence } from "../../src/kube/transport-options.ts";
import { ListedStorage, whileListed } from "../../src/migrator/listed-storage.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdLacking } from "../api/crd-lacking.ts";
import { crdWith } from "../api/crd-with.ts";
import { ManualClock } from "../manual-clock.ts";

/** A CRD whose objects a run without a freeze writes. A stand-in for an API server: of a real one it cannot be chosen when it answers. */
class Rewritten {
  readonly clock = new ManualClock();
  readonly listed: ListedStorage;
  readonly #parts: Pick<RunContext, "client" | "clock" | "retrier" | "signal">;
  crd: ReturnType<typeof crdWith> | undefined;
  looks = 0;
  /** Before it answers. */
  answer: () => Promise<unknown> = async () => undefined;

  /** @param known the CRD as the attempt knows it */
  constructor({ isThere = true, known = crdWith({ storedVersions: ["v1", "v2"] }) } = {}) {
    this.crd = known;
    const { clock } = this;
    const find = async (): Promise<unknown> => {
      this.looks++;
      await this.answer();
      return this.crd;
    };
    const client = { find, get: async () => this.crd } as unknown as ApiClient;
    const retrier = new Retrier({ clock, random: () => 0.5 });
    const { signal } = new AbortController();
    this.#parts = { client, clock, retrier, signal };
    const crd = isThere ? known : undefined;
    this.listed = new ListedStorage(this.context(), known.metadata.name, crd);
  }

  /** @param fencedBy told of what its client is fenced by */
  context(fencedBy: (fence: Fence) => void = () => undefined): RunContext {
    const { client, ...parts } = this.#parts;
    return { ...parts, client: Object.assign(Object.create(client), { fencedBy }) } as unknown as RunContext;
  }

  /** Another client takes the storage version out. */
  prune(): void {
    this.crd = crdWith({ storedVersions: ["v1"] });
  }

  /** Resolves where an object may be written. */
  mayWrite(confirm: () => Promise<void> = async () => undefined): Promise<void> {
    return this.listed.passed(confirm);
  }
}

const UNLISTED = {
  code: "ResourceNotMigratable",
  message: /storedVersions is \[v1\], without the storage version "v2"/,
};

await tap.test(
  "ListedStorage has the run begin again where the storage version or the conversion changes",
  async (t) => {
    const run = new Rewritten();
    await run.listed.look("uid-1/3");
    await run.listed.look("uid-1/3");
    run.crd = crdWith({ versions: ["v1+", "v2"], metadata: { generation: 4 } });
    await run.clock.advance(10_000);
    const change = /its storage version changed from "v2" to "v1" during the run/;
    await t.rejects(run.mayWrite(), { name: "StartAgain", message: change });
    await t.rejects(run.listed.look(), { name: "StartAgain", message: change });
    const converted = new Rewritten();
    await converted.listed.look();
    converted.crd = crdWith({ conversion: { strategy: "Webhook" } });
    await converted.clock.advance(10_000);
    await t.rejects(converted.mayWrite(), {
      name: "StartAgain",
      message: /its spec.conversion changed during the run/,
    });
    const other = new Rewritten();
    await t.rejects(other.listed.look("uid-1/2"), { name: "StartAgain", message: /the CRD changed during the run/ });
  },
);

await tap.test("ListedStorage has the CRD looked at every five seconds while objects are written", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  await run.clock.advance(4_999);
  await run.mayWrite();
  t.equal(run.looks, 1);
  await run.clock.advance(1);
  await Promise.all([run.mayWrite(), run.mayWrite()]);
  await run.clock.advance(10);
  await run.mayWrite();
  t.equal(run.looks, 2, "once for all writes");
});

await tap.test(
  "ListedStorage lets no object be written once a look shows that storedVersions lacks the version",
  async (t) => {
    const run = new Rewritten();
    await run.listed.look();
    run.prune();
    await run.clock.advance(5_000);
    await run.mayWrite().catch(() => undefined);
    await run.clock.advance(10);
    await t.rejects(run.mayWrite(), UNLISTED);
    // The run is over, also where the API server lists it again.
    run.crd = crdWith({ storedVersions: ["v1", "v2"] });
    await run.clock.advance(60_000);
    await t.rejects(run.mayWrite(), UNLISTED);
  },
);

await tap.test("ListedStorage has a write that comes after a long wait look before it is sent", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  run.prune();
  await run.clock.advance(30_000);
  run.answer = () => run.clock.sleep(3_000);
  const refused = t.rejects(run.mayWrite(), UNLISTED);
  await run.clock.advance(3_000);
  await refused;
});

await tap.test("ListedStorage looks again where the machine was suspended since it looked", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  run.prune();
  run.clock.sleepMachine(3_600_000);
  await t.rejects(run.mayWrite(), UNLISTED);
});

await tap.test("ListedStorage looks again where the machine was suspended before a look was answered", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  await run.clock.advance(10_000);
  const { crd } = run;
  run.answer = async () => {
    run.answer = async () => run.prune();
    run.crd = crd;
    run.clock.sleepMachine(3_600_000);
  };
  await t.rejects(run.mayWrite(), UNLISTED);
  t.equal(run.looks, 3);
});

await tap.test("ListedStorage has no write wait for a look while the last one is fresh", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  run.answer = () => run.clock.sleep(4_000);
  await run.clock.advance(5_000);
  await run.mayWrite();
  await run.clock.advance(4_000);
  await run.mayWrite();
  t.equal(run.looks, 2);
});

await tap.test("ListedStorage sees what a look shows while a write waits for the Lease of the run", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  run.prune();
  await run.clock.advance(5_000);
  const lease = Promise.withResolvers<void>();
  const refused = t.rejects(
    run.mayWrite(() => lease.promise),
    UNLISTED,
  );
  await run.clock.advance(10);
  lease.resolve();
  await refused;
});

await tap.test("ListedStorage looks again where a write waits long for the Lease of the run", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  let confirmed = 0;
  const refused = t.rejects(
    run.mayWrite(() => (confirmed++ === 0 ? run.clock.sleep(60_000) : Promise.resolve())),
    UNLISTED,
  );
  await run.clock.advance(1_000);
  run.prune();
  await run.clock.advance(59_000);
  await refused;
});

await tap.test("ListedStorage lets objects be written also where each look takes long", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  run.answer = () => run.clock.sleep(20_000);
  let written = 0;
  const writing = (async (): Promise<void> => {
    for (; written < 10; written++) await run.mayWrite(() => run.clock.sleep(1_000));
  })();
  await run.clock.advance(120_000);
  await writing;
  t.equal(written, 10);
  t.ok(run.looks < 8, `${run.looks} looks`);
});

await tap.test("ListedStorage: a refusal to show the CRD is no failure of an object", async (t) => {
  const run = new Rewritten();
  const answer = { kind: "Status", message: "no", reason: "Invalid" } as const;
  const refusal = new ApiError("GET the CRD", 422, { answer });
  t.equal(failureKindOf(refusal), "rejected");
  await run.listed.look();
  await run.clock.advance(10_000);
  run.answer = () => Promise.reject(refusal);
  const error: unknown = await run.mayWrite().catch((thrown: unknown) => thrown);
  t.equal(failureKindOf(error), undefined);
  t.match(error, { message: /^Cannot continue with "widgets.example.com": it cannot be seen/, cause: refusal });
});

await tap.test("ListedStorage waits for an API server that has just started and knows no roles yet", async (t) => {
  const message = 'User "u" cannot get resource "customresourcedefinitions" in API group "apiextensions.k8s.io"';
  const refusal = new ApiError("GET the CRD", 403, { answer: { kind: "Status", message, reason: "Forbidden" } });
  t.equal(failureKindOf(refusal), "denied");
  for (const [forMs, isWritten] of [
    [10_000, true],
    [60_000, false],
  ] as const) {
    const run = new Rewritten();
    await run.listed.look();
    await run.clock.advance(10_000);
    const until = run.clock.monotonic() + forMs;
    run.answer = async () => {
      if (run.clock.monotonic() < until) throw refusal;
    };
    const written = run.mayWrite().then(
      () => true,
      (error: unknown) => error,
    );
    await run.clock.advance(30_000);
    const end = await written;
    t.match(end, isWritten ? true : { message: /cannot be seen/, cause: refusal }, `${forMs} ms`);
    t.ok(run.looks < 25, `${run.looks} looks`);
  }
});

await tap.test("ListedStorage sends nothing after its end", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  await run.clock.advance(10_000);
  run.answer = () => Promise.reject(new ApiError("GET the CRD", 503, { text: "down" }));
  const ended = t.rejects(run.mayWrite());
  await run.clock.advance(1_000);
  run.listed.end();
  await ended;
  const { looks } = run;
  await run.clock.advance(60_000);
  t.equal(run.looks, looks);
});

await tap.test("ListedStorage has nothing written where a CRD is there that was not", async (t) => {
  const run = new Rewritten({ isThere: false });
  const { crd } = run;
  run.crd = undefined;
  await run.listed.look("");
  await run.mayWrite();
  run.crd = crd;
  await run.clock.advance(10_000);
  const created = { code: "CrdReplaced", message: /its CRD was created during the run; run again/ };
  await t.rejects(run.mayWrite(), created);
  await t.rejects(run.listed.look(), created);
});

await tap.test(
  "whileListed() has each write of a resource that may have a CRD wait for the look, and no other one",
  async (t) => {
    const run = new Rewritten();
    const widgets = { group: "example.com", version: "v1", resource: "widgets", kind: "Widget" };
    const told: string[] = [];
    const fence = async (): Promise<void> => void told.push("Lease");
    let fenced: Fence | undefined;
    const context = run.context((both) => (fenced = both));
    for (const crdName of ["widgets.example.com", undefined]) {
      run.looks = 0;
      run.crd = crdName === undefined ? undefined : crdWith({});
      const done = await whileListed(context, { resource: widgets, crdName, fence }, async (_, attempt) => {
        await attempt.listed?.look();
        await attempt.fence();
        t.equal(fenced, attempt.fence, "the client of the run as well");
        t.match(attempt.resource, { ...widgets, version: crdName === undefined ? "v1" : "v2" }, "as the CRD has it");
        return "done";
      });
      t.equal(done, "done");
      t.equal(run.looks, 1);
    }
    t.same(told, ["Lease", "Lease"]);
    const builtIn = { resource: { ...widgets, group: "apps" }, crdName: undefined, fence };
    t.same(await whileListed(context, builtIn, async (...given) => given), [
      context,
      { resource: builtIn.resource, fence },
    ]);
  },
);

await tap.test(
  "ListedStorage lets nothing be written in a version that comes to lack fields of the storage version",
  async (t) => {
    const run = new Rewritten({ known: crdLacking(0) });
    await run.listed.look();
    await t.resolves(run.mayWrite());
    run.crd = crdLacking(1);
    await run.clock.advance(10_000);
    await t.rejects(run.mayWrite(), { code: "ResourceNotMigratable", message: /version "v1" lacks spec\.f0/ });
  },
);

await tap.test(
  "ListedStorage has the run begin again where a version comes to be served that keeps all fields",
  async (t) => {
    const run = new Rewritten({ known: crdLacking(0) });
    await run.listed.look();
    const lacking = crdLacking(1);
    const versions = lacking.spec.versions.map((one) => ({ ...one, served: true }));
    run.crd = { ...lacking, spec: { ...lacking.spec, versions } };
    await run.clock.advance(10_000);
    const message = /version "v1", in which this run writes objects, lacks spec\.f0 now, and "v2" does not; run again/;
    await t.rejects(run.mayWrite(), { name: "StartAgain", message });
  },
);

await tap.test("ListedStorage has the run begin again where the CRD is deleted and created again", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  run.crd = crdWith({ metadata: { uid: "uid-2" } });
  await run.clock.advance(10_000);
  await t.rejects(run.mayWrite(), {
    name: "StartAgain",
    message: /the CRD was deleted and created again during the run/,
  });
});

await tap.test("ListedStorage has no object written before a look that began after the object was read", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  const answered = Promise.withResolvers<void>();
  run.answer = () => answered.promise;
  run.listed.pageRead();
  const first = run.mayWrite();
  await run.clock.advance(0);
  t.equal(run.looks, 2);
  // A page that came after that look began.
  run.listed.pageRead();
  run.crd = crdWith({ versions: ["v1+", "v2"] });
  const { crd } = run;
  run.crd = crdWith({});
  run.answer = async () => void (run.crd = crd);
  answered.resolve();
  const refused = { name: "StartAgain", message: /its storage version changed/ };
  await t.rejects(Promise.all([first, run.mayWrite()]), refused);
  t.equal(run.looks, 3);
  const calm = new Rewritten();
  await calm.listed.look();
  calm.listed.pageRead();
  await Promise.all([calm.mayWrite(), calm.mayWrite()]);
  await calm.mayWrite();
  t.equal(calm.looks, 2, "once for each page");
});

await tap.test("ListedStorage has the run begin again where the schemas change", async (t) => {
  const run = new Rewritten({ known: crdLacking(0) });
  await run.listed.look();
  const { spec, ...rest } = crdLacking(0);
  const schema = { openAPIV3Schema: { type: "object", properties: { spec: { type: "object", properties: {} } } } };
  run.crd = { ...rest, spec: { ...spec, versions: spec.versions.map((one) => ({ ...one, schema, served: true })) } };
  await run.clock.advance(10_000);
  await t.rejects(run.mayWrite(), { name: "StartAgain", message: /its spec\.versions changed during the run/ });
});

await tap.test("ListedStorage has an object that was read again wait for a look, and no other one", async (t) => {
  const run = new Rewritten();
  await run.listed.look();
  const answered = Promise.withResolvers<void>();
  run.answer = () => answered.promise;
  const ends: string[] = [];
  const again = [1, 2].map(() => run.listed.objectRead().then(() => ends.push("read again")));
  await run.clock.advance(1);
  await run.mayWrite();
  ends.push("written");
  // The look under way began before this one was read.
  const late = run.listed.objectRead().then(() => ends.push("late"));
  answered.resolve();
  await Promise.all([...again, late]);
  t.same(ends, ["written", "read again", "read again", "late"]);
  t.equal(run.looks, 3);
  run.prune();
  await t.rejects(run.listed.objectRead(), UNLISTED);
});
