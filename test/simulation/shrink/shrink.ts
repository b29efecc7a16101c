import type { Plan } from "../plan.ts";
import { ddmin } from "./ddmin.ts";
import { type Json, simplerForms } from "./simpler.ts";
import { violationKind } from "./violation-kind.ts";

/** How {@link shrink} plays, and for how long. */
export interface ShrinkOptions {
  /** @returns what a plan breaks, `undefined` for nothing */
  readonly play: (plan: Plan) => Promise<string | undefined>;
  /** At most so many plays. @default 600 */
  readonly maxPlays?: number;
  /** How many plays may be under way: as many as there are workers. @default 1 */
  readonly atOnce?: number;
  /** With how many seeds a shorter plan is tried: whether it fails also depends on what chance decides. @default 3 */
  readonly seeds?: number;
  readonly onStep?: (shorter: Shrunk) => void;
}

/** The shortest plan that was found. */
export interface Shrunk {
  readonly plan: Plan;
  readonly violation: string;
  /** How many plays it took so far. */
  readonly plays: number;
}

/**
 * Shortens a plan that breaks something, as long as it breaks the same kind of thing: first fewer actions, then a smaller world,
 * then simpler actions, and again until nothing changes. What it finds does not depend on `atOnce`.
 * @param violation what the plan is known to break
 */
export async function shrink(plan: Plan, violation: string, options: ShrinkOptions): Promise<Shrunk> {
  return new Shrinking(plan, violation, options).run();
}

class Shrinking {
  readonly #options: ShrinkOptions;
  readonly #kind: string;
  #plan: Plan;
  #violation: string;
  #plays = 0;

  constructor(plan: Plan, violation: string, options: ShrinkOptions) {
    this.#plan = plan;
    this.#violation = violation;
    this.#kind = violationKind(violation);
    this.#options = options;
  }

  async run(): Promise<Shrunk> {
    let before: Plan | undefined;
    while (before !== this.#plan && this.#left > 0) {
      before = this.#plan;
      await ddmin(this.#plan.actions, (lists) =>
        this.#firstFailing(lists.map((actions) => ({ ...this.#plan, actions }))),
      );
      await this.#simplify((plan) => worldForms(plan));
      await this.#simplify((plan) => actionForms(plan));
    }
    return this.#shrunk();
  }

  get #left(): number {
    return (this.#options.maxPlays ?? 600) - this.#plays;
  }

  #shrunk(): Shrunk {
    return { plan: this.#plan, violation: this.#violation, plays: this.#plays };
  }

  /**
   * Takes the first simpler form that still fails, and goes on from there behind what was tried, until no form of any field is
   * left: a form that did not fail is not tried again in this round.
   */
  async #simplify(formsOf: (plan: Plan) => readonly Plan[]): Promise<void> {
    const tried = new Set<string>();
    for (;;) {
      const forms = formsOf(this.#plan).filter((form) => !tried.has(changeOf(this.#plan, form)));
      const found = await this.#firstFailing(forms, (index) => tried.add(changeOf(this.#plan, forms[index] as Plan)));
      if (found === undefined) return;
    }
  }

  /** Keeps the first plan that fails in the same way. @returns its index */
  async #firstFailing(plans: readonly Plan[], onTried?: (index: number) => void): Promise<number | undefined> {
    const { seeds = 3, atOnce = 1 } = this.#options;
    const trials = plans.flatMap((plan, index) =>
      Array.from({ length: seeds }, (_, nth) => ({ index, plan: { ...plan, seed: plan.seed + nth } })),
    );
    for (let from = 0; from < trials.length && this.#left > 0; from += atOnce) {
      const batch = trials.slice(from, from + Math.min(atOnce, this.#left));
      const violations = await Promise.all(batch.map(({ plan }) => this.#options.play(plan)));
      // Those behind the first one that fails are not counted: one play after another would not have come to them.
      const first = violations.findIndex(
        (violation) => violation !== undefined && violationKind(violation) === this.#kind,
      );
      this.#plays += first === -1 ? batch.length : first + 1;
      const [hit, violation] = [batch[first], violations[first]];
      for (const { index } of first === -1 ? batch : batch.slice(0, first)) onTried?.(index);
      if (hit !== undefined && violation !== undefined) {
        [this.#plan, this.#violation] = [hit.plan, violation];
        this.#options.onStep?.(this.#shrunk());
        return hit.index;
      }
    }
    return undefined;
  }
}

/**
 * A smaller world: everything but the actions. Actions on what is no longer there do nothing. How old the world is has to be as it is or
 * as usual: in a younger one the API servers have not followed what was set up.
 */
function worldForms({ actions, ageMs, ...world }: Plan): readonly Plan[] {
  const forms = simplerForms(world as unknown as Json).map((form) => form as unknown as typeof world);
  if (ageMs === undefined) return forms.map((form) => ({ ...form, actions }));
  return [{ ...world, actions }, ...forms.map((form) => ({ ...form, ageMs, actions }))];
}

/** One action with one simpler field. */
function actionForms(plan: Plan): readonly Plan[] {
  return plan.actions.flatMap((action, index) =>
    simplerForms(action as unknown as Json).map((form) => {
      const actions = plan.actions.with(index, form as unknown as Plan["actions"][number]);
      return { ...plan, actions: actions.toSorted((a, b) => a.at - b.at) };
    }),
  );
}

/** Which change leads from one plan to another, the same text for the same change of a plan that is otherwise shorter. */
function changeOf(from: Plan, to: Plan): string {
  const [before, after] = [linesOf(from), linesOf(to)];
  const [old, kept] = [new Set(before), new Set(after)];
  return JSON.stringify([before.filter((line) => !kept.has(line)), after.filter((line) => !old.has(line))]);
}

function linesOf({ actions, seed: _seed, ...world }: Plan): readonly string[] {
  return [...actions, ...Object.entries(world)].map((part) => JSON.stringify(part));
}
