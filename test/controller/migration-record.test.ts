import tap from "tap";
import type { StorageVersionMigration } from "../../src/api/migration.ts";
import { OWNER_ANNOTATION } from "../../src/api/names.ts";
import { type FreezeOwner, formatOwner } from "../../src/api/owner.ts";
import { MigrationRecord } from "../../src/controller/migration-record.ts";
import { withKstatus } from "../../src/api/kstatus.ts";
import { KsvmError } from "../../src/errors.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";

type Body = Record<string, Record<string, unknown>>;

/** One migration with the API server's preconditions. */
class Store {
  object: StorageVersionMigration | undefined;
  /** Whether the status is a subresource: else a write to it is dropped, and answered 200. */
  hasStatus = true;
  writes = 0;
  /** So many answers to writes are lost. */
  losesAnswers = 0;
  #version = 1;

  constructor(conditions: readonly object[] = []) {
    this.object = {
      apiVersion: "migration.k8s.io/v1alpha1",
      kind: "StorageVersionMigration",
      metadata: { name: "m", uid: "u", resourceVersion: "1" },
      spec: { resource: { group: "g", version: "v1", resource: "ws" } },
      status: { conditions },
    } as unknown as StorageVersionMigration;
  }

  readonly client = {
    find: async () => structuredClone(this.object),
    patch: async (_: unknown, __: unknown, { body }: { body: Body }, { subresource }: { subresource?: string }) => {
      if (this.object === undefined)
        throw new ApiError("PATCH m", 404, { answer: { kind: "Status", details: { name: "m" } } });
      if (body["metadata"]?.["resourceVersion"] !== this.object.metadata.resourceVersion) {
        throw new ApiError("PATCH m", 409, { text: "modified" });
      }
      this.writes++;
      this.touch(body, subresource);
      if (this.losesAnswers > 0) {
        this.losesAnswers--;
        throw new ApiError("PATCH m", 504, { text: "timeout" });
      }
      return structuredClone(this.object);
    },
  } as unknown as ApiClient;

  /** Writes as the API server does for a client. */
  touch(body: Body, subresource?: string): void {
    const { object } = this;
    if (object === undefined) return;
    const annotations = { ...object.metadata.annotations, ...(body["metadata"]?.["annotations"] as object) };
    const metadata = { ...object.metadata, annotations, resourceVersion: String(++this.#version) };
    const status = subresource === "status" && this.hasStatus ? { ...object.status, ...body["status"] } : object.status;
    const spec = subresource === undefined ? { ...object.spec, ...body["spec"] } : object.spec;
    this.object = { ...object, metadata, spec, ...(status === undefined ? {} : { status }) };
  }
}

function optionsFor(store: Store, identity: string, assertLeading: () => void = () => undefined) {
  const clock = new FakeClock();
  const owner: FreezeOwner = { lease: "ns/l", identity, since: "2026-01-01T00:00:00Z" };
  const retrier = new Retrier({ clock, random: () => 0 });
  return { client: store.client, clock, retrier, owner, assertLeading, signal: new AbortController().signal };
}

const REF = { name: "m", uid: "u" };
const RUNNING = { type: "Running", status: "True" } as const;

async function claimed(store: Store, identity = "a", assertLeading?: () => void): Promise<MigrationRecord> {
  const record = await MigrationRecord.claim(optionsFor(store, identity, assertLeading), REF);
  if (record === undefined) throw new KsvmError("Internal", "it could not be claimed");
  return record;
}

await tap.test("MigrationRecord.claim() puts the leader's name on the migration", async (t) => {
  const store = new Store();
  const record = await claimed(store);
  const expected = formatOwner({ lease: "ns/l", identity: "a", since: "2026-01-01T00:00:00Z" });
  t.equal(store.object?.metadata.annotations?.[OWNER_ANNOTATION], expected);
  await record.update((before) => ({ ...before, conditions: [RUNNING] }));
  t.same(store.object?.status?.conditions, withKstatus([RUNNING]));
});

await tap.test("MigrationRecord.claim() leaves a finished, a deleted and another one alone", async (t) => {
  const finished = new Store([{ type: "Failed", status: "True" }]);
  t.equal(await MigrationRecord.claim(optionsFor(finished, "a"), REF), undefined);
  t.equal(finished.writes, 0);
  const other = new Store();
  t.equal(await MigrationRecord.claim(optionsFor(other, "a"), { ...REF, uid: "before" }), undefined);
  other.object = undefined;
  t.equal(await MigrationRecord.claim(optionsFor(other, "a"), REF), undefined);
});

await tap.test("MigrationRecord continues after another client's edit", async (t) => {
  const store = new Store();
  const record = await claimed(store);
  store.touch({ metadata: { annotations: { note: "x" } } });
  await record.update((before) => ({ ...before, progress: "1/2" }));
  await record.saveToken("t");
  t.equal(store.object?.status?.progress, "1/2");
  t.equal(store.object?.spec.continueToken, "t");
  t.equal(store.object?.metadata.annotations?.["note"], "x");
});

await tap.test("MigrationRecord.saveToken() leaves out a token that is longer than the CRD takes", async (t) => {
  const store = new Store();
  const record = await claimed(store);
  await record.saveToken("t".repeat(16_384));
  t.equal(store.object?.spec.continueToken?.length, 16_384);
  await record.saveToken("t".repeat(16_385));
  t.notOk(store.object?.spec.continueToken);
});

await tap.test("MigrationRecord does not write what came of a run that a restore of etcd has undone", async (t) => {
  const store = new Store();
  const record = await claimed(store);
  const backup = structuredClone(store.object);
  await record.update((before) => ({ ...before, progress: "9/9" }));
  store.object = backup;
  const succeeded = { conditions: [{ type: "Succeeded", status: "True" }] } as const;
  const lost = { code: "OwnershipLost", message: /restored from a backup/ };
  await t.rejects(
    record.update(() => succeeded),
    lost,
  );
  t.same(store.object?.status?.conditions, []);
  await record.checkAfterRun();
  await record.update((before) => ({ ...before, conditions: [RUNNING] }));
  t.same(
    store.object?.status?.conditions,
    withKstatus([RUNNING]),
    "the next run begins with the migration as it is now",
  );
});

await tap.test(
  "MigrationRecord does not write it either where the migration has a higher resourceVersion by then, as with --bump-revision",
  async (t) => {
    const store = new Store();
    const record = await claimed(store);
    await record.update((before) => ({ ...before, counts: { migrated: 3, skipped: 0, failed: 0 } }));
    const backup = structuredClone(store.object);
    await record.update((before) => ({ ...before, counts: { migrated: 7, skipped: 2, failed: 0 } }));
    store.object = backup;
    store.touch({ spec: { suspend: false } });
    const conditions = [{ type: "Succeeded", status: "True" }] as const;
    await t.rejects(
      record.update((before) => ({ ...before, conditions })),
      { code: "OwnershipLost", message: /restored from a backup/ },
    );
    t.same(store.object?.status?.conditions, backup?.status?.conditions);
  },
);

await tap.test(
  "MigrationRecord takes a write whose answer was lost for no restore, although its run began again",
  async (t) => {
    const store = new Store();
    const record = await claimed(store);
    await record.update((before) => ({ ...before, counts: { migrated: 7, skipped: 2, failed: 0 } }));
    store.losesAnswers = 1;
    await record.update((before) => ({ ...before, counts: { migrated: 1, skipped: 0, failed: 0 } }));
    t.match(store.object?.status?.counts, { migrated: 1 });
  },
);

await tap.test(
  "MigrationRecord does not write it either where a look found out about the restore before",
  async (t) => {
    const store = new Store();
    const record = await claimed(store);
    const backup = structuredClone(store.object);
    await record.update((before) => ({ ...before, progress: "9/9" }));
    store.object = backup;
    const lost = { code: "OwnershipLost", message: /restored from a backup/ };
    await t.rejects(record.check(), lost);
    const succeeded = { conditions: [{ type: "Succeeded", status: "True" }] } as const;
    await t.rejects(
      record.update(() => succeeded),
      lost,
    );
    await t.rejects(record.saveToken("token"), lost);
    await t.rejects(record.check(), lost);
    t.same(store.object?.status?.conditions, []);
    await record.checkAfterRun();
    await record.check();
    await record.update((before) => ({ ...before, conditions: [RUNNING] }));
    t.same(
      store.object?.status?.conditions,
      withKstatus([RUNNING]),
      "the next run begins with the migration as it is now",
    );
  },
);

await tap.test("MigrationRecord writes nothing after another replica took over", async (t) => {
  const store = new Store();
  const sleeper = await claimed(store, "a");
  const other = await claimed(store, "b");
  await other.update((before) => ({ ...before, progress: "5/9" }));
  const { writes } = store;
  await t.rejects(
    sleeper.update((before) => ({ ...before, progress: "1/9" })),
    { code: "OwnershipLost" },
  );
  await t.rejects(sleeper.saveToken("old"), { code: "OwnershipLost" });
  await t.rejects(sleeper.check(), { code: "OwnershipLost" });
  t.equal(store.writes, writes);
  t.equal(store.object?.status?.progress, "5/9");
});

await tap.test("MigrationRecord sends nothing where this replica does not lead any more", async (t) => {
  const store = new Store();
  let leads = true;
  const record = await claimed(store, "a", () => {
    if (!leads) throw new KsvmError("OwnershipLost", "lost");
  });
  leads = false;
  const { writes } = store;
  await t.rejects(
    record.update((before) => ({ ...before, progress: "1/9" })),
    { code: "OwnershipLost" },
  );
  t.equal(store.writes, writes);
});

await tap.test("MigrationRecord says that the migration was deleted, or deleted and created again", async (t) => {
  const gone = new Store();
  const record = await claimed(gone);
  gone.object = undefined;
  await t.rejects(record.check(), { name: "MigrationDeleted", code: "NotFound" });
  await t.rejects(
    record.update((before) => before),
    { name: "MigrationDeleted" },
  );
  const again = new Store();
  const old = await claimed(again);
  const { object } = again;
  if (object !== undefined) {
    again.object = { ...object, metadata: { ...object.metadata, uid: "new", resourceVersion: "77" } };
  }
  await t.rejects(
    old.update((before) => ({ ...before, progress: "1/9" })),
    { name: "MigrationDeleted" },
  );
});

await tap.test("F23: MigrationRecord does not take a status that was not stored for written", async (t) => {
  const store = new Store();
  store.hasStatus = false;
  const record = await claimed(store);
  await t.rejects(
    record.update((before) => ({ ...before, conditions: [RUNNING] })),
    { code: "ApiRequestFailed", message: /reads back differently/ },
  );
});

await tap.test("MigrationRecord waits between two writes that meet", async (t) => {
  for (const status of [404, 409]) {
    await t.test(String(status), async (t) => {
      const store = new Store();
      const stop = new AbortController();
      const options = { ...optionsFor(store, "a"), signal: stop.signal };
      const record = await MigrationRecord.claim(options, REF);
      if (record === undefined) throw new Error("it could not be claimed");
      let writes = 0;
      // A stand-in: two API servers behind a load balancer may answer like this, or an admission webhook.
      Object.assign(store.client, {
        patch: async () => {
          if (++writes === 12) stop.abort(new Error("enough"));
          throw new ApiError("PATCH m", status, {});
        },
      });
      await t.rejects(
        record.update((before) => before),
        { message: "enough" },
      );
      const { sleeps } = options.clock;
      t.same(sleeps.slice(0, 4), [50, 100, 200, 400]);
      t.equal(sleeps.at(-1), 5_000, "in the end as seldom as every five seconds");
    });
  }
});

await tap.test(
  "MigrationRecord does not take a 404 of an API server that does not serve the CRD for a deletion",
  async (t) => {
    const store = new Store();
    const options = optionsFor(store, "a");
    const record = await MigrationRecord.claim(options, REF);
    if (record === undefined) throw new Error("it could not be claimed");
    // A stand-in: which of two API servers answers cannot be chosen.
    let unserved = 4;
    const client = store.client as unknown as { find: unknown };
    client.find = async () => {
      if (unserved-- > 0) throw new ApiError("GET m", 404, { text: "404 page not found" });
      return structuredClone(store.object);
    };
    await t.resolves(record.check(), "it is asked again");
    unserved = Number.POSITIVE_INFINITY;
    await t.rejects(
      record.check(),
      { name: "ApiError", status: 404 },
      "in the end the run is broken off, and not ended",
    );
    unserved = 0;
    await t.resolves(record.check());
  },
);

for (const end of ["Failed", "Succeeded"] as const) {
  await tap.test(`MigrationRecord.update() never overwrites a ${end} that another client wrote`, async (t) => {
    const store = new Store([RUNNING]);
    const record = await claimed(store);
    const theirs = [{ type: end, status: "True", reason: "Theirs" }];
    store.touch({ status: { conditions: theirs } }, "status");
    const ours = { type: end === "Failed" ? "Succeeded" : "Failed", status: "True" } as const;
    await t.rejects(
      record.update((before) => ({ ...before, conditions: [ours] })),
      { name: "MigrationOver", message: new RegExp(`is ${end} already`) },
    );
    t.same(store.object?.status?.conditions, theirs);
    await t.rejects(record.check(), { name: "MigrationOver" }, "a run under way ends");
    const { writes } = store;
    await t.rejects(record.saveToken("x"), { name: "MigrationOver" });
    t.equal(store.writes, writes, "nothing is written any more");
  });
}

await tap.test("MigrationRecord.update() never overwrites an end of its own", async (t) => {
  const store = new Store([RUNNING]);
  const record = await claimed(store);
  const failed = [{ type: "Failed", status: "True" }] as const;
  await record.update((before) => ({ ...before, conditions: failed }));
  await t.rejects(
    record.update((before) => ({ ...before, conditions: [RUNNING] })),
    { name: "MigrationOver" },
  );
  t.same(store.object?.status?.conditions, withKstatus(failed));
});

await tap.test("MigrationRecord takes one that is deleted for gone, whatever finalizer keeps it", async (t) => {
  const store = new Store([RUNNING]);
  const record = await claimed(store);
  const remove = (): void => {
    const { object } = store;
    if (object !== undefined) {
      const metadata = { ...object.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" };
      store.object = { ...object, metadata };
    }
  };
  remove();
  await t.rejects(record.check(), { name: "MigrationDeleted" });
  t.equal(await MigrationRecord.claim(optionsFor(store, "a"), REF), undefined, "nor does it begin");
});
