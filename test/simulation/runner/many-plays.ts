import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { planOf } from "../plan-of.ts";
import type { Plan } from "../plan.ts";
import { playReport } from "../report/failure-report.ts";
import { savePlan } from "../report/plan-file.ts";
import { shrink, type Shrunk } from "../shrink/shrink.ts";
import type { Options } from "./play-options.ts";
import { playSeeds, violationOf } from "./play-seeds.ts";
import type { Played, PlayTask } from "./play-task.ts";
import { ProgressLine, progressText } from "./progress.ts";
import { readResumeFile, type ResumeState, writeResumeFile } from "./resume-file.ts";
import { SeedList } from "./seed-list.ts";
import { simulationPool } from "./simulation-pool.ts";
import { type BrokenSeed, brokenKinds, emptyTotals, type Totals, totalsText } from "./totals.ts";
import { treeOf } from "./tree.ts";
import type { WorkerPool } from "./worker-pool.ts";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const SAVE_EVERY_MS = 5_000;
/** More are counted, and not printed. */
const MOST_PRINTED = 20;

/** Plays many seeds in worker processes, tells how far it is, and shortens what fails. */
export class ManyPlays {
  readonly #options: Options;
  readonly #pool: WorkerPool<PlayTask, Played>;
  readonly #line = new ProgressLine(process.stderr, () => performance.now());
  readonly #seeds: SeedList;
  readonly #totals: Totals;
  readonly #save: () => void;
  readonly #startedAt = performance.now();
  readonly #secondsBefore: number;
  readonly #doneBefore: number;
  #savedAt = performance.now();
  #isInterrupted = false;

  /** @throws {UsageError} if the play cannot be continued from its file */
  constructor(options: Options, { from, count }: { readonly from: number; readonly count: number }) {
    this.#options = options;
    const { resume, mutation = null } = options;
    let state: ResumeState | undefined;
    const tree = resume === undefined ? undefined : treeOf(ROOT, mutation !== null);
    if (resume !== undefined && tree !== undefined) state = readResumeFile(resume, { tree, mutation, from, count });
    this.#seeds = new SeedList(state?.seeds ?? { from, count });
    this.#totals = state?.totals ?? emptyTotals();
    this.#secondsBefore = this.#totals.seconds;
    this.#doneBefore = this.#seeds.done;
    this.#save = () => {
      this.#totals.seconds = this.#secondsBefore + this.#seconds();
      if (resume === undefined || tree === undefined) return;
      writeResumeFile(resume, { tree, mutation, seeds: this.#seeds.state(), totals: this.#totals });
    };
    this.#save();
    this.#pool = simulationPool(options);
    if (state !== undefined) this.#say(`Continuing from "${resume}": ${this.#seeds.done} of ${count} seeds are played`);
  }

  /** Ctrl-C: ends the workers; what was done is told and kept. */
  interrupt(): void {
    this.#isInterrupted = true;
    void this.#pool.kill();
  }

  /** @returns whether all seeds were played and nothing broke */
  async run(): Promise<boolean> {
    const { atOnce } = this.#pool;
    await playSeeds({
      play: (task) => this.#pool.do(task),
      atOnce,
      seeds: this.#seeds,
      totals: this.#totals,
      onBroken: (broken) => this.#onBroken(broken),
      onPlayed: () => this.#onPlayed(),
    });
    this.#save();
    this.#line.clear();
    if (this.#pool.failure !== undefined) throw new Error(this.#pool.failure);
    console.log(totalsText(this.#seeds.done, this.#totals));
    await this.#shrinkKinds();
    await this.#pool.close();
    return this.#totals.brokenCount === 0 && this.#seeds.done === this.#seeds.count;
  }

  #seconds(): number {
    return (performance.now() - this.#startedAt) / 1_000;
  }

  #say(text: string): void {
    this.#line.clear();
    console.log(text);
  }

  #onBroken({ seed, violation }: BrokenSeed): void {
    const { brokenCount } = this.#totals;
    if (brokenCount <= MOST_PRINTED) this.#say(`SEED=${seed}: ${violation}`);
    if (brokenCount === MOST_PRINTED) this.#say("Seeds that break something are no longer printed, only counted");
  }

  #onPlayed(): boolean {
    const { brokenCount } = this.#totals;
    this.#line.show(() => {
      const { done, count } = this.#seeds;
      const played = done - this.#doneBefore;
      return progressText({ done, total: count, broken: brokenCount, played, seconds: this.#seconds() });
    });
    if (performance.now() - this.#savedAt >= SAVE_EVERY_MS) {
      this.#save();
      this.#savedAt = performance.now();
    }
    return this.#pool.failure !== undefined || (this.#options.stop && brokenCount > 0);
  }

  async #shrinkKinds(): Promise<void> {
    const kinds = brokenKinds(this.#totals);
    for (const [index, kind] of kinds.entries()) {
      const others = kind.count === 1 ? "" : `, and ${kind.count - 1} more in this way`;
      console.log(`\nSEED=${kind.seed} broke${others}: ${kind.violation}`);
      // A process that was lost may hang again with each shorter plan.
      if (index < this.#options.shrink && !this.#isInterrupted && !kind.violation.startsWith("lost"))
        await this.#shrinkOne(kind);
      else console.log(`  make simulate SEED=${kind.seed} shows what happens`);
    }
  }

  async #shrinkOne({ seed, violation }: BrokenSeed): Promise<void> {
    const whole = planOf(seed);
    const play = async (plan: Plan): Promise<string | undefined> => violationOf(await this.#pool.do({ plan }));
    const onStep = ({ plan, plays }: Shrunk): void =>
      this.#line.show(
        () => `shrinking: ${plan.actions.length} of ${whole.actions.length} actions left, ${plays} plays`,
      );
    const shrunk = await shrink(whole, violation, { play, atOnce: this.#pool.size, onStep });
    this.#line.clear();
    const file = join(this.#options.out, `seed-${seed}.json`);
    savePlan(file, { violation: shrunk.violation, fromSeed: seed, plan: shrunk.plan });
    const actions = `${shrunk.plan.actions.length} of ${whole.actions.length} actions`;
    console.log(
      `The shortest plan that breaks it too has ${actions} (found in ${shrunk.plays} plays): make simulate PLAN=${file}`,
    );
    const done = await this.#pool.do({ plan: shrunk.plan, withTrace: true });
    if (done.kind === "result") console.log(playReport(shrunk.plan, done.result).join("\n"));
  }
}
