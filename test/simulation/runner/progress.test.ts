import tap from "tap";
import { durationText, ProgressLine, progressText } from "./progress.ts";

await tap.test("progressText() tells the pace of this process, and the time that is left at it", (t) => {
  const progress = { done: 12_000, total: 100_000, broken: 3, played: 2_000, seconds: 50 };
  t.equal(progressText(progress), "12,000 of 100,000 seeds, 40.0 schedules/s, 3 broken, 37 min left");
  t.equal(progressText({ ...progress, played: 0, seconds: 0 }), "12,000 of 100,000 seeds, 0.0 schedules/s, 3 broken");
  t.same([0, 89, 90, 5_340, 5_400].map(durationText), ["0 s", "89 s", "2 min", "89 min", "1 h 30 min"]);
  t.end();
});

function lineOn(isTTY: boolean): { readonly line: ProgressLine; readonly written: string[]; at: (ms: number) => void } {
  const written: string[] = [];
  let now = 0;
  const line = new ProgressLine({ isTTY, write: (text) => written.push(text) }, () => now);
  return { line, written, at: (ms) => (now = ms) };
}

await tap.test("ProgressLine writes over its line on a terminal, and makes room", (t) => {
  const { line, written, at } = lineOn(true);
  line.show(() => "one");
  at(100);
  line.show(() => "too soon");
  at(200);
  line.show(() => "two");
  line.clear();
  line.clear();
  line.show(() => "again at once");
  t.same(written, ["\r\u001B[Kone", "\r\u001B[Ktwo", "\r\u001B[K", "\r\u001B[Kagain at once"]);
  t.end();
});

await tap.test("ProgressLine writes a plain line every ten seconds elsewhere", (t) => {
  const { line, written, at } = lineOn(false);
  for (let ms = 0; ms <= 25_000; ms += 500) {
    at(ms);
    line.show(() => `${ms}`);
  }
  line.clear();
  t.same(written, ["10000\n", "20000\n"]);
  t.end();
});
