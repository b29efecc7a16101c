import tap from "tap";
import { optionsOf } from "./play-options.ts";

await tap.test("optionsOf() says what is to be played", (t) => {
  t.match(optionsOf([]), { play: { from: 1, count: 1_000 }, shrink: 3, stop: false, resume: undefined });
  t.match(optionsOf(["--seeds", "5", "--from", "100", "--stop"]), { play: { from: 100, count: 5 }, stop: true });
  t.match(optionsOf(["--seed", "7"]), { play: { seed: 7 }, shrink: 0 });
  t.match(optionsOf(["--plan", "a.json", "--workers", "3"]), { play: { planFile: "a.json" }, workers: 3 });
  t.match(optionsOf(["--resume", "a", "--mutation", "b"]), { resume: "a", mutation: "b" });
  t.end();
});

await tap.test("optionsOf() refuses what makes no sense with one line", (t) => {
  const refusals = [
    [["--seeds", "abc"], 'SEEDS has to be a whole number, 1 or more: "abc"'],
    [["--seeds", "0"], 'SEEDS has to be a whole number, 1 or more: "0"'],
    [["--seeds", "1e6"], 'SEEDS has to be a whole number, 1 or more: "1e6"'],
    [["--seed", "-1"], /^Option '--seed' argument is ambiguous/],
    [["--seed=-1"], 'SEED has to be a whole number, 0 or more: "-1"'],
    [["--hang-seconds", ""], 'HANG_SECONDS has to be a whole number, 1 or more: ""'],
    [["--seed", "1", "--seeds", "2"], /^Only one of SEED, PLAN and SEEDS/],
    [["--plan", "a", "--resume", "b"], /^Only one of SEED, PLAN and SEEDS/],
    [["--what"], /^Unknown option '--what'/],
  ] as const;
  for (const [args, message] of refusals)
    t.throws(() => optionsOf(args), { name: "UsageError", message }, args.join(" "));
  t.end();
});
