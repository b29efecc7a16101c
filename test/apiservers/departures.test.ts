import tap from "tap";
import { Departures } from "../../src/apiservers/departures.ts";

const lease = (name: string, uid = `uid of ${name}`) => ({ name, uid });

await tap.test("Departures tells of an API server whose Lease is gone, and of one that restarted", (t) => {
  const departures = new Departures();
  departures.looked([lease("a"), lease("b")], [lease("a"), lease("b")], 10);
  t.equal(departures.last, undefined);
  departures.looked([lease("a")], [lease("a")], 20);
  t.same(departures.last, { name: "b", at: 20 });
  departures.looked([lease("a", "another")], [lease("a", "another")], 30);
  t.same(departures.last, { name: "a", at: 30 });
  departures.left(lease("c"), 40);
  t.same(departures.last, { name: "c", at: 40 }, "it joined and left between two looks");
  t.equal(departures.lastWithin(5, 46), undefined);
  t.end();
});

await tap.test(
  "Departures takes an API server that was gone before for none that leaves when its Lease is deleted",
  (t) => {
    const departures = new Departures();
    departures.looked([lease("a"), lease("b")], [lease("a")], 10);
    departures.left(lease("b"), 20);
    t.equal(departures.last, undefined, "as a watch shows it");
    departures.looked([lease("a")], [lease("a")], 30);
    t.equal(departures.last, undefined, "as a look shows it");
    departures.looked([lease("a"), lease("b")], [lease("a")], 40);
    departures.renewed(lease("b"));
    departures.left(lease("b"), 50);
    t.same(departures.last, { name: "b", at: 50 }, "it lived after all");
    t.end();
  },
);

await tap.test(
  "Departures may have missed one that another process saw leave, until long enough after the first look",
  (t) => {
    const departures = new Departures();
    departures.looked([lease("a")], [lease("a")], 10);
    t.notOk(departures.mayHaveMissedWithin(5, 10), "of what came before a process looks at all it knows nothing");
    departures.missed(100);
    t.equal(departures.firstLookAt, undefined);
    t.ok(departures.mayHaveMissedWithin(5, 105));
    t.notOk(departures.mayHaveMissedWithin(5, 106), "where nothing can be looked at");
    departures.looked([lease("a")], [lease("a")], 110);
    departures.looked([lease("a")], [lease("a")], 114);
    t.equal(departures.firstLookAt, 110);
    t.ok(departures.mayHaveMissedWithin(5, 115));
    t.notOk(departures.mayHaveMissedWithin(5, 116));
    t.end();
  },
);
