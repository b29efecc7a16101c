import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../src/api/names.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { failureKindOf } from "../../src/kube/failure.ts";
import { ForeignPrunes } from "../../src/migrator/foreign-prunes.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { ManualClock } from "../manual-clock.ts";

const MAX_FREEZE_IDLE_MS = 300_000;

/**
 * A CRD, and a run that rewrites its objects. A stand-in for an API server: of a real one it cannot be chosen what happens between a
 * write and its answer.
 */
class Watched {
  readonly clock = new ManualClock();
  readonly warnings: unknown[] = [];
  /** What the API server answers to a write, once it has done it. */
  answer: () => Promise<unknown> = async () => undefined;
  reads = 0;
  /** Reads by which nothing is decided that is sent. */
  finds = 0;
  writes = 0;
  crd = crdWith();
  readonly #abort = new AbortController();
  readonly prunes: ForeignPrunes;

  constructor() {
    const { clock } = this;
    const client = {
      get: async () => {
        this.reads++;
        return this.crd;
      },
      find: async () => {
        this.finds++;
        return this.crd;
      },
      patch: async () => {
        this.writes++;
        const written = this.#write(["v1", "v2"]);
        await this.answer();
        return written;
      },
    } as unknown as ApiClient;
    const retrier = new Retrier({ clock, random: () => 0.5, maxFreezeIdleMs: MAX_FREEZE_IDLE_MS });
    const emit = (event: unknown): unknown => this.warnings.push(event);
    const options = { maxFreezeIdleMs: MAX_FREEZE_IDLE_MS };
    const context = { client, clock, retrier, emit, options, signal: this.#abort.signal } as unknown as RunContext;
    this.prunes = new ForeignPrunes(context, this.crd.metadata.name);
    this.#write(["v1", "v2"]);
  }

  /** Another client takes the storage version out, and the watch shows it. */
  prune(): void {
    this.prunes.saw(this.pruneUnseen());
  }

  /** The watch does not show it. */
  pruneUnseen(): CustomResourceDefinition {
    return this.#write(["v1"]);
  }

  /** The run reads a page, and looks at the CRD before it writes the first object of it. */
  look(): Promise<void> {
    this.prunes.outdate();
    return this.mayWrite();
  }

  /** Resolves where an object may be written. */
  mayWrite(confirm: () => Promise<void> = async () => undefined): Promise<void> {
    return this.prunes.passed(confirm);
  }

  /** A user lifts the freeze as well, before the watch shows anything. */
  pruneAndLift(left: Readonly<Record<string, string>>): void {
    this.prunes.saw(this.#write(["v1"], left));
  }

  #write(
    storedVersions: readonly string[],
    annotations: Readonly<Record<string, string>> = { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: "{}" },
  ): CustomResourceDefinition {
    const resourceVersion = String(Number(this.crd.metadata.resourceVersion) + 1);
    this.crd = crdWith({ storedVersions, metadata: { annotations, resourceVersion } });
    return this.crd;
  }
}

await tap.test("ForeignPrunes lists the storage version again, once for each time that it is missing", async (t) => {
  const watched = new Watched();
  watched.prune();
  await watched.mayWrite();
  t.same(watched.crd.status, { storedVersions: ["v1", "v2"] });
  t.equal(watched.writes, 1);
  t.match(watched.warnings, [{ type: "warning", message: /set storedVersions of .* to \[v1\].*it is listed again/ }]);
  watched.prunes.saw(watched.crd);
  await watched.mayWrite();
  t.equal(watched.writes, 1);
});

await tap.test("ForeignPrunes sees a prune that comes before the answer to its own write", async (t) => {
  const watched = new Watched();
  watched.answer = async () => {
    watched.answer = async () => undefined;
    watched.prune();
  };
  watched.prune();
  const written = watched.mayWrite();
  await watched.clock.advance(60_000);
  await written;
  t.same(watched.crd.status, { storedVersions: ["v1", "v2"] }, "objects are written after that");
  t.equal(watched.writes, 2);
});

await tap.test("ForeignPrunes has what a look shows judged before an object is written", async (t) => {
  const watched = new Watched();
  await watched.look();
  watched.prunes.judge = () => {
    throw new Error("its conversion changed");
  };
  await watched.clock.advance(10_000);
  await t.rejects(watched.mayWrite(), { message: "its conversion changed" });
});

await tap.test("ForeignPrunes sees a prune that comes while a write waits for the Lease of the run", async (t) => {
  const watched = new Watched();
  const lease = Promise.withResolvers<void>();
  const written = watched.mayWrite(() => lease.promise);
  await watched.clock.advance(10);
  watched.prune();
  lease.resolve();
  await written;
  t.same(watched.crd.status, { storedVersions: ["v1", "v2"] });
});

await tap.test("ForeignPrunes sees a prune at each moment after the answer to its own write", async (t) => {
  for (let turns = 0; turns < 40; turns++) {
    const watched = new Watched();
    const pruneLater = async (): Promise<void> => {
      for (let turn = 0; turn < turns; turn++) {
        await Promise.resolve();
      }
      watched.prune();
    };
    watched.answer = async () => {
      watched.answer = async () => undefined;
      void pruneLater();
    };
    watched.prune();
    const written = watched.mayWrite().then(() => watched.mayWrite());
    await watched.clock.advance(60_000);
    await written;
    t.same(watched.crd.status, { storedVersions: ["v1", "v2"] }, `${turns} turns of the event loop later`);
  }
});

await tap.test("ForeignPrunes believes what it reads where a restore of etcd takes the CRD back", async (t) => {
  const watched = new Watched();
  const { crd } = watched;
  watched.prune();
  await watched.mayWrite();
  watched.prune();
  // The prune is gone.
  watched.crd = crd;
  const written = watched.mayWrite();
  await watched.clock.advance(2_000);
  await written;
  t.equal(watched.writes, 1);
});

await tap.test("ForeignPrunes is not misled by a watch that is late", async (t) => {
  const watched = new Watched();
  watched.prune();
  const late = watched.crd;
  watched.answer = async () => {
    watched.answer = async () => undefined;
    watched.prune();
    watched.prunes.saw(late);
  };
  const written = watched.mayWrite();
  await watched.clock.advance(60_000);
  await written;
  t.same(watched.crd.status, { storedVersions: ["v1", "v2"] });
});

await tap.test(
  "ForeignPrunes looks by itself every five seconds while objects are written: a watch may be late",
  async (t) => {
    const watched = new Watched();
    await watched.look();
    const { finds } = watched;
    await watched.clock.advance(4_999);
    await watched.mayWrite();
    t.equal(watched.finds, finds);
    await watched.clock.advance(1);
    watched.pruneUnseen();
    await watched.mayWrite();
    await watched.mayWrite();
    await watched.clock.advance(10);
    await watched.mayWrite();
    t.same(watched.crd.status, { storedVersions: ["v1", "v2"] });
    t.equal(watched.finds, finds + 1);
  },
);

await tap.test("ForeignPrunes has no write rest on a look that began before it was outdated", async (t) => {
  const watched = new Watched();
  await watched.look();
  const { finds } = watched;
  await watched.mayWrite();
  t.equal(watched.finds, finds, "negative control: a look of a moment ago is enough");
  watched.prunes.outdate();
  await Promise.all([watched.mayWrite(), watched.mayWrite()]);
  await watched.mayWrite();
  t.equal(watched.finds, finds + 1, "one look for all objects of a page");
  watched.prunes.judge = () => {
    throw new Error("its spec.versions changed");
  };
  await t.rejects(watched.prunes.lookFromNow(), { message: "its spec.versions changed" });
});

await tap.test("ForeignPrunes has a write that comes after a long wait look first", async (t) => {
  const watched = new Watched();
  await watched.look();
  watched.pruneUnseen();
  await watched.clock.advance(30_000);
  await watched.mayWrite();
  t.same(watched.crd.status, { storedVersions: ["v1", "v2"] });
});

await tap.test("ForeignPrunes holds no freeze for a client that prunes before each answer", async (t) => {
  const watched = new Watched();
  watched.answer = async () => watched.prune();
  watched.prune();
  const ended = t.rejects(watched.mayWrite(), {
    name: "WaitingForOthers",
    message: /again and again/,
  });
  await watched.clock.advance(MAX_FREEZE_IDLE_MS + 60_000);
  await ended;
  t.ok(watched.writes < 40, `${watched.writes} writes`);
});

await tap.test("ForeignPrunes holds no freeze for a client that prunes after each answer", async (t) => {
  const watched = new Watched();
  let passed = 0;
  const untilRefused = async (): Promise<void> => {
    for (;;) {
      watched.prune();
      await watched.mayWrite();
      passed++;
    }
  };
  const ended = t.rejects(untilRefused(), { code: "Conflict", message: /again and again/ });
  await watched.clock.advance(MAX_FREEZE_IDLE_MS + 60_000);
  await watched.prunes.end();
  await ended;
  t.ok(passed > 10 && passed < 40, `${passed} writes`);
});

await tap.test("ForeignPrunes goes on for as long as a client prunes now and then", async (t) => {
  const watched = new Watched();
  for (let times = 0; times < 200; times++) {
    watched.prune();
    await watched.mayWrite();
    await watched.clock.advance(15_000);
  }
  t.equal(watched.writes, 200);
});

await tap.test("ForeignPrunes goes on also where each listing takes a while", async (t) => {
  const watched = new Watched();
  const { clock } = watched;
  watched.answer = () => clock.sleep(3_000);
  for (let times = 0; times < 200; times++) {
    watched.prune();
    const written = watched.mayWrite();
    await clock.advance(15_000);
    await written;
  }
  t.equal(watched.writes, 200);
});

await tap.test("ForeignPrunes sends nothing after its end", async (t) => {
  const watched = new Watched();
  watched.prune();
  await watched.mayWrite();
  watched.prune();
  await watched.clock.advance(100);
  await watched.prunes.end();
  const { reads, writes } = watched;
  await watched.clock.advance(60_000);
  watched.prune();
  await watched.clock.advance(60_000);
  t.same([watched.reads, watched.writes], [reads, writes]);
});

await tap.test("ForeignPrunes names it where a user lifts the freeze and the storage version is missing", async (t) => {
  for (const left of [{}, { [OWNER_ANNOTATION]: "{}" }]) {
    const watched = new Watched();
    watched.pruneAndLift(left);
    await t.rejects(watched.mayWrite(), { code: "FreezeLifted" });
    t.equal(watched.writes, 0, "the CRD is the user's");
  }
});

await tap.test(
  "ForeignPrunes names it where the owner of the freeze is gone and the storage version is missing",
  async (t) => {
    const watched = new Watched();
    watched.pruneAndLift({ [MIGRATING_ANNOTATION]: "true" });
    await t.rejects(
      watched.mayWrite(),
      { code: "OwnershipLost", message: /removed annotation/ },
      "as the watch of the CRD says",
    );
    t.equal(watched.writes, 0, "the freeze is not that of the run any more");
  },
);

const REFUSALS: readonly (readonly [string, number, object])[] = [
  ["rejected", 403, { message: 'admission webhook "w" denied the request: no', reason: "Forbidden" }],
  ["denied", 403, { message: 'User "u" cannot patch resource "customresourcedefinitions"', reason: "Forbidden" }],
  ["gone", 404, { message: "not found", reason: "NotFound", details: { name: "widgets.example.com" } }],
];
for (const [kind, status, answer] of REFUSALS) {
  await tap.test(`ForeignPrunes: a write of the CRD that is ${kind} is no failure of an object`, async (t) => {
    const watched = new Watched();
    const refusal = new ApiError("patch the CRD", status, { answer: { kind: "Status", ...answer } });
    t.equal(failureKindOf(refusal), kind);
    watched.answer = () => Promise.reject(refusal);
    watched.prune();
    const error: unknown = await watched.mayWrite().catch((thrown: unknown) => thrown);
    t.equal(failureKindOf(error), undefined);
    const message = /^Cannot continue with "widgets.example.com": .*does not list it again: /;
    t.match(error, { code: refusal.code, message, cause: refusal });
  });
}
