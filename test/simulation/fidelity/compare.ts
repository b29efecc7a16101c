import type { NormalLine } from "./normalize.ts";

/** One field in which the model is not like the real API server. */
export interface Difference {
  readonly scenario: string;
  readonly line: string;
  /** Such as `told.body.metadata.generation`. */
  readonly field: string;
  readonly real: unknown;
  readonly model: unknown;
}

/** The fields in which two worlds differ, line by line. */
export function differencesOf(
  scenario: string,
  real: readonly NormalLine[],
  model: readonly NormalLine[],
): readonly Difference[] {
  const lines = Array.from({ length: Math.max(real.length, model.length) }, (_, index) => index);
  return lines.flatMap((index) => {
    const [there, here] = [real[index], model[index]];
    const line = there?.title ?? here?.title ?? "";
    return fieldsThatDiffer("", there, here).map((found) => ({ scenario, line, ...found }));
  });
}

type FieldDifference = Omit<Difference, "scenario" | "line">;

function fieldsThatDiffer(field: string, real: unknown, model: unknown): readonly FieldDifference[] {
  if (Array.isArray(real) && Array.isArray(model)) {
    const indices = Array.from({ length: Math.max(real.length, model.length) }, (_, index) => index);
    return indices.flatMap((index) => fieldsThatDiffer(`${field}[${index}]`, real[index], model[index]));
  }
  if (isObject(real) && isObject(model)) {
    const keys = [...new Set([...Object.keys(real), ...Object.keys(model)])];
    return keys.flatMap((key) => fieldsThatDiffer(field === "" ? key : `${field}.${key}`, real[key], model[key]));
  }
  return Object.is(real, model) ? [] : [{ field, real, model }];
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A difference as a person reads it. */
export function describeDifference({ field, line, model, real, scenario }: Difference): string {
  return [`${scenario}: ${line}`, `  ${field}`, `    real:  ${shown(real)}`, `    model: ${shown(model)}`].join("\n");
}

function shown(value: unknown): string {
  return value === undefined ? "absent" : JSON.stringify(value);
}
