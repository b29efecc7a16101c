import { readdirSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import type { Plan } from "../plan.ts";
import { parsePlan } from "../report/plan-file.ts";

/** A plan that broke something once: NAME.json in this folder. */
export interface Regression {
  /** That of the file, without `.json`. */
  readonly name: string;
  /** What it broke, as the check said it. */
  readonly violation: string;
  /** What was wrong with the code. */
  readonly wasWrong: string;
  /** The commit that fixed it. */
  readonly fixedIn: string;
  /** The mutation that brings the mistake back, so that the plan can be seen to fail. */
  readonly mutation?: string;
  readonly plan: Plan;
}

/** @throws {Error} where a file is none, or its plan cannot be played any more */
export function readRegressions(): readonly Regression[] {
  const files = readdirSync(import.meta.dirname).filter((file) => file.endsWith(".json"));
  return files.toSorted().map((file) => {
    const text = readFileSync(new URL(file, import.meta.url), "utf8");
    const json = JSON.parse(text) as Omit<Regression, "name" | "plan">;
    for (const field of ["violation", "wasWrong", "fixedIn"] as const) {
      if (typeof json[field] !== "string" || json[field] === "") throw new Error(`${file}: "${field}" is missing`);
    }
    return { ...json, name: basename(file, ".json"), plan: parsePlan(text) };
  });
}

/** The plan with its own seed and the ones after it: chance decides other things with each of them. */
export function variantsOf({ plan }: Regression, count: number): readonly Plan[] {
  return Array.from({ length: count }, (_, nth) => ({ ...plan, seed: plan.seed + nth }));
}
