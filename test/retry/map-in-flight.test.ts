import tap from "tap";

import { mapInFlight } from "../../src/retry/map-in-flight.ts";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

await tap.test("mapInFlight() keeps the order of the items, with so many under way at most", async (t) => {
  let inFlight = 0;
  let most = 0;
  const work = async (item: number): Promise<string> => {
    most = Math.max(most, ++inFlight);
    for (let turns = item; turns > 0; turns--) await turn();
    inFlight--;
    return `${item}`;
  };
  t.same(await mapInFlight([5, 1, 4, 0, 2], work, { most: 2 }), ["5", "1", "4", "0", "2"]);
  t.equal(most, 2);
  t.same(await mapInFlight([], work, { most: 2 }), []);
});

await tap.test("mapInFlight() throws what one item comes to", async (t) => {
  const failure = new Error("no");
  const work = (item: number): Promise<number> => (item === 1 ? Promise.reject(failure) : Promise.resolve(item));
  await t.rejects(mapInFlight([0, 1, 2], work, { most: 1 }), failure);
});
