import tap from "tap";
import { ArrivalLog, type ListedLease } from "../../src/apiservers/arrival-log.ts";

const lease = (name: string, given: Partial<ListedLease> = {}): ListedLease => ({
  name,
  uid: `uid of ${name}`,
  holder: `${name}_1`,
  renewTime: "2026-01-01T00:00:00.000000Z",
  isOver: false,
  ...given,
});
const LATER = "2026-01-01T00:00:10.000000Z";
const RENEWED = { renewTime: LATER };
const JOINED = { type: "ADDED", lease: lease("c") } as const;

/** Two API servers that live, and one that is gone for an hour. */
const THREE = [lease("a"), lease("b"), lease("gone", { isOver: true })];

function listed() {
  const log = new ArrivalLog();
  log.listed(THREE);
  return { log, before: log.count };
}

for (const { title, events, changes, said } of [
  {
    title: "counts nothing while API servers renew their Leases",
    events: [{ type: "MODIFIED", lease: lease("a", RENEWED) }],
    changes: 0,
    said: /not watched/,
  },
  {
    title: "counts one that joined, and once more that it left",
    events: [JOINED, { type: "MODIFIED", lease: lease("c", RENEWED) }, { type: "DELETED", lease: lease("c") }],
    changes: 2,
    said: /^the API server of identity Lease c left$/,
  },
  {
    title: "counts an event once that two watches tell",
    events: [JOINED, JOINED],
    changes: 1,
    said: /^the API server of identity Lease c joined$/,
  },
  {
    title: "counts one that restarted under its own name",
    events: [
      { type: "DELETED", lease: lease("a") },
      { type: "ADDED", lease: lease("a", { uid: "another" }) },
    ],
    changes: 2,
    said: /^the API server of identity Lease a joined$/,
  },
  {
    title: "counts another API server that holds a Lease",
    events: [{ type: "MODIFIED", lease: lease("a", { holder: "a_2", renewTime: LATER }) }],
    changes: 1,
    said: /^another API server took identity Lease a over$/,
  },
  {
    title: "counts one that renews a Lease which had expired",
    events: [{ type: "MODIFIED", lease: lease("gone", RENEWED) }],
    changes: 1,
    said: /^the API server of identity Lease gone, which had expired, lives$/,
  },
  {
    title: "counts another API server that holds the Lease of one that joined",
    events: [
      JOINED,
      { type: "MODIFIED", lease: lease("c", RENEWED) },
      { type: "MODIFIED", lease: lease("c", { holder: "c_2", renewTime: LATER }) },
      { type: "MODIFIED", lease: lease("c", { holder: "c_2" }) },
    ],
    changes: 2,
    said: /^another API server took identity Lease c over$/,
  },
  {
    title: "counts once what two watches tell of one that joined, the slower one from the beginning",
    events: [JOINED, { type: "MODIFIED", lease: lease("c", { holder: "c_2" }) }, JOINED],
    changes: 2,
    said: /^another API server took identity Lease c over$/,
  },
  {
    title: "counts no change of an expired Lease that is not renewed",
    events: [{ type: "MODIFIED", lease: lease("gone") }],
    changes: 0,
    said: /not watched/,
  },
] as const) {
  await tap.test(`ArrivalLog ${title}`, (t) => {
    const { log, before } = listed();
    for (const event of events) log.told(event);
    t.equal(log.count - before, changes);
    t.match(log.newest, said);
    t.end();
  });
}

await tap.test("ArrivalLog counts a list as a change: what joined and left before it is not known", (t) => {
  const { log, before } = listed();
  log.listed(THREE);
  t.equal(log.count, before + 1);
  t.end();
});
