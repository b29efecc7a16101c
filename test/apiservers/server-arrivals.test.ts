import { PassThrough, type Readable } from "node:stream";
import tap from "tap";
import { type Clock, systemClock } from "../../src/clock.ts";
import { ServerArrivals } from "../../src/apiservers/server-arrivals.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";

type Query = Readonly<Record<string, unknown>>;

/** An API server whose watches say what a test has them say: a real one cannot be made to lag, or to forget, at a given moment. */
class Stand {
  revision = 10;
  lists = 0;
  readonly opened: Query[] = [];
  /** The watches that are open; the first one is the long one. */
  readonly watches: PassThrough[] = [];
  refusal: ApiError | undefined;
  /** What the next list waits for, whatever its signal says: its answer is on the way. */
  held: Promise<void> | undefined;
  /** Whether a short watch tells at once how far it is. */
  isPrompt = true;

  get client(): ApiClient {
    const request = async () => {
      this.lists++;
      const items = [
        {
          metadata: { name: "a", uid: "uid of a" },
          spec: { holderIdentity: "a_1", renewTime: new Date().toISOString(), leaseDurationSeconds: 3_600 },
        },
      ];
      const answer = { status: 200, body: { metadata: { resourceVersion: String(this.revision) }, items } };
      const { held } = this;
      this.held = undefined;
      await held;
      return answer;
    };
    return { transport: { server: "https://a", request, stream: this.#stream } } as unknown as ApiClient;
  }

  readonly #stream = async ({ query, signal }: { query: Query; signal: AbortSignal }): Promise<Readable> => {
    if (this.refusal !== undefined) throw this.refusal;
    this.opened.push(query);
    const watch = new PassThrough();
    signal.addEventListener("abort", () => watch.destroy(new Error("aborted")));
    this.watches.push(watch);
    if (query["timeoutSeconds"] === 3 && this.isPrompt) this.tell(watch, "BOOKMARK", "", this.revision);
    return watch;
  };

  tell(watch: PassThrough | undefined, type: string, name: string, revision: number): void {
    const metadata = { name, uid: `uid of ${name}`, resourceVersion: String(revision) };
    watch?.write(`${JSON.stringify({ type, object: { metadata, spec: { holderIdentity: `${name}_1` } } })}\n`);
  }
}

/** The clock of this machine, on which the time to catch up is over soon. */
const IMPATIENT: Clock = { ...systemClock, timeout: () => AbortSignal.timeout(1_500) };

function setting(clock: Clock = systemClock) {
  const stand = new Stand();
  const { client } = stand;
  return {
    stand,
    client,
    arrivals: new ServerArrivals(clock),
    context: { client, signal: new AbortController().signal },
  };
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await systemClock.sleep(5);
}

await tap.test(
  "ServerArrivals watches the identity Leases from the list on, with one watch for all work",
  async (t) => {
    const { arrivals, client, stand } = setting();
    await arrivals.during(client, async () => {
      await arrivals.during(client, () => until(() => stand.watches.length === 1));
      t.match(stand.opened, [
        {
          resourceVersion: "10",
          labelSelector: "apiserver.kubernetes.io/identity=kube-apiserver",
          allowWatchBookmarks: true,
        },
      ]);
      t.equal(stand.watches[0]?.destroyed, false, "the outer work goes on");
    });
    t.equal(stand.watches[0]?.destroyed, true, "it ends with the work");
    t.equal(stand.lists, 1);
  },
);

await tap.test("ServerArrivals tells at once of each API server that joins", async (t) => {
  const { client, stand } = setting();
  let joined = 0;
  const arrivals = new ServerArrivals(systemClock, undefined, () => joined++);
  await arrivals.during(client, async () => {
    await until(() => stand.watches.length === 1);
    const [watch] = stand.watches;
    stand.tell(watch, "MODIFIED", "a", 11);
    stand.tell(watch, "ADDED", "b", 12);
    stand.tell(watch, "DELETED", "b", 13);
    await until(() => arrivals.seenTo === "13");
    t.equal(joined, 1);
  });
});

await tap.test("catchUp() reads what the watch has not told yet, and counts what came in between", async (t) => {
  const { arrivals, client, context, stand } = setting();
  await arrivals.during(client, async () => {
    const before = arrivals.count;
    await arrivals.catchUp(context);
    t.equal(arrivals.count, before, "nothing came");
    stand.revision = 20;
    stand.isPrompt = false;
    const caughtUp = arrivals.catchUp(context);
    await until(() => stand.watches.length === 2);
    const [, short] = stand.watches;
    t.match(stand.opened[1], { resourceVersion: "10", timeoutSeconds: 3 });
    stand.tell(short, "ADDED", "b", 12);
    stand.tell(short, "DELETED", "b", 15);
    stand.tell(short, "BOOKMARK", "", 20);
    await caughtUp;
    t.equal(arrivals.count, before + 2);
    t.match(arrivals.newest, /identity Lease b left/);
    t.type(arrivals.changedAt, "number");
  });
});

await tap.test(
  "catchUp() counts a restore of etcd as a change: a watch from beyond what there is tells nothing",
  async (t) => {
    const { arrivals, client, context, stand } = setting();
    stand.revision = 100;
    await arrivals.during(client, async () => {
      await until(() => stand.watches.length === 1);
      const before = arrivals.count;
      stand.revision = 50;
      await arrivals.catchUp(context);
      t.equal(arrivals.count, before + 1);
      t.equal(arrivals.seenTo, "50");
      t.equal(stand.watches[0]?.destroyed, true, "and all are watched from there");
      t.equal(stand.opened.at(-1)?.["resourceVersion"], "50");
    });
  },
);

await tap.test("catchUp() fails where no watch gets to what a list shows", async (t) => {
  const { arrivals, client, context, stand } = setting(IMPATIENT);
  stand.isPrompt = false;
  await arrivals.during(client, async () => {
    stand.revision = 20;
    await t.rejects(arrivals.catchUp(context), { code: "WatchFailed", name: "StartAgain", message: /lags behind/ });
  });
});

await tap.test("catchUp() names the right to watch where it is missing", async (t) => {
  const { arrivals, client, context, stand } = setting(IMPATIENT);
  const answer = {
    kind: "Status",
    reason: "Forbidden",
    message: `leases.coordination.k8s.io is forbidden: User "a" cannot watch resource "leases" in API group "coordination.k8s.io" in the namespace "kube-system"`,
    code: 403,
  } as const;
  stand.refusal = new ApiError("WATCH leases", 403, { answer });
  await arrivals.during(client, async () => {
    stand.revision = 20;
    await t.rejects(arrivals.catchUp(context), { code: "Forbidden", message: /may not list and watch leases/ });
  });
});

await tap.test("ServerArrivals counts a watch that went on too late as a change", async (t) => {
  const { arrivals, client, context, stand } = setting();
  await arrivals.during(client, async () => {
    const before = arrivals.count;
    await until(() => stand.watches.length === 1);
    stand.revision = 900;
    const expired = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" };
    stand.watches[0]?.write(`${JSON.stringify({ type: "ERROR", object: expired })}\n`);
    await until(() => stand.watches.length === 2);
    await arrivals.catchUp(context);
    t.equal(arrivals.count, before + 1);
    t.match(arrivals.newest, /not watched for a while/);
    t.match(stand.opened[1], { resourceVersion: "900" });
  });
});

await tap.test("ServerArrivals keeps to the watch of a run that began while that of another one ended", async (t) => {
  const { arrivals, client, stand } = setting();
  const first = Promise.withResolvers<void>();
  const ended = arrivals.during(client, () => first.promise);
  await until(() => stand.watches.length === 1);
  const held = Promise.withResolvers<void>();
  stand.held = held.promise;
  const expired = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" };
  stand.watches[0]?.write(`${JSON.stringify({ type: "ERROR", object: expired })}\n`);
  await until(() => stand.lists === 2);
  first.resolve();
  await systemClock.sleep(5);
  stand.revision = 30;
  await arrivals.during(client, async () => {
    await until(() => stand.watches.length === 2);
    const before = arrivals.count;
    held.resolve();
    await ended;
    t.equal(arrivals.seenTo, "30", "the list of the one that ended is not taken");
    t.equal(arrivals.count, before);
    stand.tell(stand.watches[1], "ADDED", "b", 31);
    await until(() => arrivals.count > before);
    t.equal(arrivals.seenTo, "31");
  });
  t.equal(arrivals.seenTo, "", "nothing is watched");
});

function unanswered({ signal }: { signal: AbortSignal }): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
}

await tap.test(
  "ServerArrivals does not hold up a run that is to end while an API server does not answer",
  async (t) => {
    const { arrivals } = setting();
    const client = { transport: { server: "https://a", request: unanswered } } as unknown as ApiClient;
    const interrupted = new AbortController();
    // The work itself knows what to do then.
    const ended = arrivals.during(client, async () => interrupted.signal.aborted, interrupted.signal);
    interrupted.abort();
    t.equal(await Promise.race([ended, systemClock.sleep(1_000)]), true);
  },
);

await tap.test("ServerArrivals watches between two runs where something lasts throughout", async (t) => {
  const { arrivals, client, stand } = setting();
  const run = (): Promise<number> => arrivals.during(client, async () => arrivals.count);
  await arrivals.throughout(async () => {
    t.equal(stand.lists, 0, "it begins with the first run");
    t.equal(await run(), await run(), "nothing was missed in between");
  });
  t.equal(stand.lists, 1);
  t.equal(stand.watches[0]?.destroyed, true, "it ends");
  const before = arrivals.count;
  t.equal(await run(), before + 1, "in between some may have come and gone");
});

await tap.test("wasQuietSince() reads what came since another process saw everything", async (t) => {
  const cases: readonly (readonly [
    title: string,
    events: readonly (readonly [string, string, number])[],
    quiet: boolean,
  ])[] = [
    ["nothing came", [["BOOKMARK", "", 20]], true],
    ["a Lease was renewed", [["MODIFIED", "a", 20]], true],
    [
      "an API server joined and left",
      [
        ["ADDED", "b", 12],
        ["DELETED", "b", 15],
        ["BOOKMARK", "", 20],
      ],
      false,
    ],
    [
      "one left that had joined before",
      [
        ["DELETED", "b", 15],
        ["BOOKMARK", "", 20],
      ],
      false,
    ],
    [
      "one renewed its Lease, and left",
      [
        ["MODIFIED", "b", 15],
        ["DELETED", "b", 16],
        ["BOOKMARK", "", 20],
      ],
      false,
    ],
  ];
  for (const [title, events, expected] of cases) {
    const { arrivals, context, stand } = setting(IMPATIENT);
    stand.revision = 20;
    stand.isPrompt = false;
    const isQuiet = arrivals.wasQuietSince(context, "10");
    await until(() => stand.watches.length === 1);
    t.match(stand.opened[0], { resourceVersion: "10" }, title);
    for (const event of events) stand.tell(stand.watches[0], ...event);
    t.equal(await isQuiet, expected, title);
  }
});

await tap.test("wasQuietSince() knows nothing where the API server keeps no events so far back", async (t) => {
  const { arrivals, context, stand } = setting();
  const isQuiet = arrivals.wasQuietSince(context, "10");
  stand.isPrompt = false;
  await until(() => stand.watches.length === 1);
  const gone = { kind: "Status", status: "Failure", reason: "Expired", code: 410 };
  stand.watches[0]?.write(`${JSON.stringify({ type: "ERROR", object: gone })}\n`);
  t.notOk(await isQuiet);
});

await tap.test("wasQuietSince() believes no watch that does not get to now", async (t) => {
  const { arrivals, context, stand } = setting(IMPATIENT);
  stand.revision = 20;
  stand.isPrompt = false;
  const isQuiet = arrivals.wasQuietSince(context, "10");
  await until(() => stand.watches.length === 1);
  stand.tell(stand.watches[0], "BOOKMARK", "", 19);
  t.notOk(await isQuiet);
});
