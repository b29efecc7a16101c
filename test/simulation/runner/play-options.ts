import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { UsageError } from "./usage-error.ts";

/** What `main.ts` is asked for. */
export interface Options {
  /** One play with its trace, or many seeds. */
  readonly play:
    | { readonly seed: number }
    | { readonly planFile: string }
    | { readonly from: number; readonly count: number };
  readonly workers: number;
  readonly hangSeconds: number;
  /** Of how many kinds of violations the first one is shortened. */
  readonly shrink: number;
  /** Whether to end at the first seed that breaks something. */
  readonly stop: boolean;
  readonly resume: string | undefined;
  readonly mutation: string | undefined;
  /** Where shortened plans are saved. */
  readonly out: string;
}

const FLAGS = {
  seed: { type: "string" },
  plan: { type: "string" },
  from: { type: "string" },
  seeds: { type: "string" },
  workers: { type: "string" },
  "hang-seconds": { type: "string" },
  shrink: { type: "string" },
  stop: { type: "boolean" },
  resume: { type: "string" },
  mutation: { type: "string" },
  out: { type: "string" },
} as const;

/** Every seed is a number of 32 bits. */
const LARGEST_SEED = 2 ** 32 - 1;

/** @throws {UsageError} */
export function optionsOf(args: readonly string[]): Options {
  const values = valuesOf(args);
  const number = (name: keyof typeof FLAGS, fallback: number, least = 1): number => {
    const text = values[name] as string | undefined;
    return text === undefined ? fallback : numberOf(name, text, least);
  };
  const play = playOf(values);
  return {
    play,
    workers: number("workers", availableParallelism()),
    hangSeconds: number("hang-seconds", 60),
    shrink: number("shrink", "count" in play ? 3 : 0, 0),
    stop: values.stop === true,
    resume: values.resume,
    mutation: values.mutation,
    out: values.out ?? "simulation-failures",
  };
}

type Values = ReturnType<typeof parseArgs<{ options: typeof FLAGS }>>["values"];

function valuesOf(args: readonly string[]): Values {
  try {
    return parseArgs({ args: [...args], options: FLAGS }).values;
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function playOf({ seed, plan, from, seeds, resume, stop }: Values): Options["play"] {
  const isMany = from !== undefined || seeds !== undefined || resume !== undefined || stop === true;
  if ([seed !== undefined, plan !== undefined, isMany].filter(Boolean).length > 1) {
    throw new UsageError("Only one of SEED, PLAN and SEEDS (with FROM, RESUME and STOP) can be played");
  }
  if (plan !== undefined) return { planFile: plan };
  if (seed !== undefined) return { seed: numberOf("seed", seed, 0) };
  return { from: numberOf("from", from ?? "1", 0), count: numberOf("seeds", seeds ?? "1000", 1) };
}

function numberOf(name: string, text: string, least: number): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < least || value > LARGEST_SEED) {
    const variable = name.toUpperCase().replaceAll("-", "_");
    throw new UsageError(`${variable} has to be a whole number, ${least} or more: "${text}"`);
  }
  return value;
}
