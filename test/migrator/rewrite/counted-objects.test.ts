import type { ServerResponse } from "node:http";
import tap, { type Test } from "tap";
import { ApiClient } from "../../../src/kube/client.ts";
import { keptFollowingIn } from "../../../src/migrator/rewrite/counted-objects.ts";
import { PageReader } from "../../../src/migrator/rewrite/page-reader.ts";
import type { Settled } from "../../../src/migrator/rewrite/rewrite-pass.ts";
import { Retrier } from "../../../src/retry/retrier.ts";
import { FakeClock } from "../../fake-clock.ts";
import { type SeenRequest, sendJson, sendStatus, startServer } from "../../kube/local-server.ts";
import { pass } from "./pass-fixture.ts";

// The server is local: no real API server leaves objects out, or counts as an old kine does.

/** A resource as an API server has it, and what stands before it. */
interface Cluster {
  /** The objects, as they are now. */
  names: readonly string[];
  /** Whether something before the API server takes an object out of lists, and leaves their metadata as they are. @default none */
  readonly isLeftOut?: (name: string, list: number) => boolean;
  /** How many objects an answer says are left. @default as an API server with etcd does */
  readonly countOf?: (counted: {
    readonly begin: number;
    readonly end: number;
    readonly all: number;
  }) => number | undefined;
  /** Called before each list, the first one with 1. */
  readonly onList?: (list: number) => void;
  /** Whether a token is too old: one that goes on in the present is handed out. @default none is */
  readonly isExpired?: (token: string, list: number) => boolean;
}

interface Reading {
  readonly reader: PageReader;
  /** The lists that were asked for. */
  readonly lists: readonly string[];
}

async function readingOf(t: Test, cluster: Cluster, pageSize = 2): Promise<Reading> {
  const lists: string[] = [];
  const server = await startServer(t, answering(cluster, lists));
  const clock = new FakeClock();
  const reader = new PageReader({
    client: new ApiClient(server.transport()),
    clock,
    retrier: new Retrier({ clock, random: () => 0.5 }),
    resource: { group: "example.com", version: "v2", resource: "widgets" },
    otherVersions: [],
    pageSize,
    emit: () => undefined,
    signal: new AbortController().signal,
  });
  return { reader, lists };
}

/** Its resourceVersions count the states that it was seen in. */
function answering(cluster: Cluster, lists: string[] = []): (request: SeenRequest, response: ServerResponse) => true {
  const states: (readonly string[])[] = [];
  return ({ query }, response) => {
    const { countOf = ({ all, end }) => all - end, isExpired, isLeftOut } = cluster;
    const [token, limit] = [query.get("continue") ?? "", Number(query.get("limit"))];
    lists.push(`${limit}${token === "" ? "" : ` at ${token}`}`);
    cluster.onList?.(lists.length);
    if (states.at(-1) !== cluster.names) states.push(cluster.names);
    const [state = "", after = ""] = token.split(" after ");
    if (isExpired?.(token, lists.length) === true) {
      const fresh = { metadata: { continue: `${states.length} after ${after}` } };
      sendStatus(response, 410, { reason: "Expired", message: "too old", ...fresh });
      return true;
    }
    const revision = token === "" ? states.length : Number(state);
    const all = states[revision - 1] ?? [];
    const begin = all.filter((name) => token !== "" && name <= after).length;
    const end = Math.min(all.length, begin + limit);
    const remainingItemCount = countOf({ begin, end, all: all.length });
    const more =
      end === all.length
        ? {}
        : {
            continue: `${revision} after ${all[end - 1] ?? ""}`,
            ...(remainingItemCount === undefined ? {} : { remainingItemCount }),
          };
    sendJson(response, 200, {
      kind: "PartialObjectMetadataList",
      metadata: { resourceVersion: `${revision}`, ...more },
      items: all
        .slice(begin, end)
        .filter((name) => isLeftOut?.(name, lists.length) !== true)
        .map((name) => ({ metadata: { name, uid: `uid-${name}`, resourceVersion: "1" } })),
    });
    return true;
  };
}

/** Reads all pages, as a pass does. @returns the names */
async function readAll({ reader }: Reading): Promise<readonly string[]> {
  const names: string[] = [];
  await reader.probe();
  do {
    names.push(...(await reader.next()).items.map(({ name }) => name));
  } while (reader.continueToken !== undefined);
  return names;
}

const named = (count: number): readonly string[] =>
  Array.from({ length: count }, (_, index) => `w${String(index).padStart(3, "0")}`);
const missing = (objects: string) => ({
  code: "Forbidden",
  message: new RegExp(
    `^Cannot go on: ${objects} missing from a list of "widgets\\.example\\.com", by the count of the API server: `,
  ),
});

function isW003(name: string): boolean {
  return name === "w003";
}

function isThird(_token: string, list: number): boolean {
  return list === 3;
}

await tap.test("a list that leaves objects out, whichever they are, does not pass for the whole of it", async (t) => {
  for (const count of [2, 3, 4, 5, 6, 9]) {
    for (const pageSize of [1, 2, 3, 20]) {
      for (const name of named(count)) {
        const reading = await readingOf(t, { names: named(count), isLeftOut: (one) => one === name }, pageSize);
        await t.rejects(readAll(reading), missing("1 object is"), `${name} of ${count}, ${pageSize} on a page`);
      }
      const reading = await readingOf(t, { names: named(count), isLeftOut: () => true }, pageSize);
      await t.rejects(readAll(reading), missing("\\d objects? (is|are)"), `all of ${count}, ${pageSize} on a page`);
    }
  }
});

await tap.test(
  "a list that has every object is read with one request for each page, and one before them",
  async (t) => {
    for (const [count, lists] of [
      [0, ["1", "2"]],
      [1, ["1", "2"]],
      [2, ["1", "2"]],
      [3, ["1", "2", "2 at 1 after w001"]],
      [5, ["1", "2", "2 at 1 after w001", "2 at 1 after w003"]],
    ] as const) {
      const reading = await readingOf(t, { names: named(count) });
      t.same(await readAll(reading), named(count));
      t.same(reading.lists, lists);
    }
  },
);

await tap.test("objects that are deleted between two lists are not taken for objects that are left out", async (t) => {
  for (const pageSize of [1, 2, 20]) {
    const cluster: Cluster = {
      names: named(6),
      onList: () => (cluster.names = cluster.names.slice(0, -1)),
    };
    const reading = await readingOf(t, cluster, pageSize);
    const names = await readAll(reading);
    t.same(names, named(names.length));
    // The rest of what the first answer showed is read once.
    t.equal(reading.lists.filter((list) => list.includes("at 1")).length, { 1: 0, 2: 0, 20: 1 }[pageSize]);
  }
});

await tap.test("of a long list that becomes short, no more is read again than there was", async (t) => {
  const cluster: Cluster = { names: named(120), onList: (list) => (cluster.names = named(list === 1 ? 120 : 1)) };
  const reading = await readingOf(t, cluster, 500);
  t.same(await readAll(reading), named(1));
  t.same(reading.lists, ["1", "200", "50 at 1 after w000", "200 at 1 after w050"]);
});

await tap.test("objects that are left out show also where others are deleted at the same time", async (t) => {
  const cluster: Cluster = {
    names: named(100),
    isLeftOut: (name) => name === "w080",
    onList: () => (cluster.names = cluster.names.slice(0, -1)),
  };
  await t.rejects(readAll(await readingOf(t, cluster, 500)), missing("1 object is"));
});

await tap.test("one odd answer ends no run: the page is read again", async (t) => {
  for (const odd of [1, 2, 3, 4, 5]) {
    const reading = await readingOf(t, { names: named(7), isLeftOut: (_name, list) => list === odd });
    t.same(await readAll(reading), named(7), `the answer to list ${odd}`);
  }
});

await tap.test("a token that expires takes what was counted with it", async (t) => {
  for (const expires of [3, 4]) {
    const cluster: Cluster = {
      names: named(6),
      onList: (list) => (cluster.names = list >= expires ? named(5) : cluster.names),
      isExpired: (token, list) => token !== "" && list === expires,
    };
    const reading = await readingOf(t, cluster);
    t.same(await readAll(reading), named(5));
    t.equal(reading.lists.length, 5);
  }
});

await tap.test("a token of the first answer that expires makes it be asked for again", async (t) => {
  const [isExpired, isLeftOut] = [isThird, isW003];
  const filtered = await readingOf(t, { names: named(5), isExpired, isLeftOut }, 20);
  await t.rejects(readAll(filtered), missing("1 object is"));
  t.equal(filtered.lists[4], "1");

  const cluster: Cluster = {
    names: named(5),
    isExpired,
    onList: (list) => (cluster.names = named(list === 1 ? 5 : 4)),
  };
  const reading = await readingOf(t, cluster, 20);
  t.same(await readAll(reading), named(4));
  // The one token leads on in the present, and the second first answer counts no more than there were.
  t.same(reading.lists, ["1", "20", "20 at 1 after w000", "20 at 3 after w000", "1"]);
});

await tap.test("a run that goes on at a token finds what is left out behind its first page", async (t) => {
  const cluster: Cluster = { names: named(9), isLeftOut: (name) => name === "w008" };
  const { reader } = await readingOf(t, cluster);
  await reader.probe();
  reader.continueToken = "1 after w003";
  t.equal((await reader.next()).items.length, 2);
  t.equal((await reader.next()).items.length, 2);
  await t.rejects(reader.next(), missing("1 object is"));
});

await tap.test(
  "a run that goes on at its last page finds what is left out there, by what the run before it kept",
  async (t) => {
    const onList = answering({ names: named(4), isLeftOut: (name) => name === "w003" });
    const options = { count: 4, pageSize: 2, accepts: () => true, onList };
    let left: Settled | undefined;
    const stop = new Error("the run ends here");
    const onPage = (settled: Settled): void => {
      left = settled;
      throw stop;
    };
    await t.rejects(pass(t, { ...options, onPage }), stop);
    t.match(left?.point, { following: { resourceVersion: "1", count: 2 } });
    await t.rejects(pass(t, { ...options, left }), missing("1 object is"));
  },
);

await tap.test("what is kept of what was counted is not believed where it is not whole", async (t) => {
  t.same(keptFollowingIn({ resourceVersion: "1", count: 2, more: 3 }), { resourceVersion: "1", count: 2 });
  for (const value of [undefined, null, {}, { resourceVersion: 1, count: 2 }, { resourceVersion: "1", count: "2" }]) {
    t.equal(keptFollowingIn(value), undefined);
  }
});

await tap.test("no API server that counts otherwise is taken for one whose lists leave objects out", async (t) => {
  for (const [name, countOf] of [
    ["an aggregated one that does not count", () => undefined],
    ["kine before 0.11.4, which counts no further than the limit and one more", () => 1],
    ["kine from 0.11.4 to 0.11.8, which counts from the first object", ({ all, begin, end }) => all - (end - begin)],
    ["one that counts nothing", () => 0],
    ["one that counts less than nothing", () => -3],
  ] satisfies readonly (readonly [string, Cluster["countOf"]])[]) {
    for (const count of [1, 2, 3, 6, 7]) {
      for (const pageSize of [1, 2, 20]) {
        const reading = await readingOf(t, { names: named(count), countOf }, pageSize);
        t.same(await readAll(reading), named(count), `${name}: ${count} objects, ${pageSize} on a page`);
      }
    }
  }
});

await tap.test("an API server that does not count may leave a page short", async (t) => {
  const names = named(6);
  const reading = await readingOf(t, { names, isLeftOut: isW003, countOf: () => undefined });
  t.same(
    await readAll(reading),
    names.filter((name) => !isW003(name)),
  );
});

await tap.test("RewritePass ends before an object is written where the first page leaves objects out", async (t) => {
  const onList = answering({ names: named(6), isLeftOut: (name) => name !== "w000" });
  const written = new Set<string>();
  const options = { count: 6, pageSize: 2, accepts: () => true, written, onList };
  await t.rejects(pass(t, options), missing("1 object is"));
  t.same([...written], []);
});
