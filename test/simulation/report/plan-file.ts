import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { randomFrom } from "../../chaos/random.ts";
import type { ActionSort } from "../actions/action-sort.ts";
import { actionSort } from "../actions/all-actions.ts";
import { type Plan, PROGRAMS } from "../plan.ts";
import { UsageError } from "../runner/usage-error.ts";
import { REQUEST_KINDS } from "../world/request-kinds.ts";

/** A plan as a file keeps it, with what it broke. */
export interface SavedPlan {
  readonly violation: string;
  /** The seed that it was shortened from. */
  readonly fromSeed?: number;
  readonly plan: Plan;
}

/** @throws {UsageError} if it cannot be written */
export function savePlan(file: string, saved: SavedPlan): void {
  try {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `${JSON.stringify(saved, undefined, 2)}\n`);
  } catch (error) {
    throw new UsageError(`Cannot write "${file}": ${(error as Error).message}`);
  }
}

/**
 * Reads a plan, or the plan of a {@link SavedPlan} or of a regression.
 * @throws {UsageError} where there is none, or the simulation cannot play it
 */
export function readPlan(file: string): Plan {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new UsageError(`Cannot read the plan "${file}": ${(error as Error).message}`);
  }
  try {
    return parsePlan(text);
  } catch (error) {
    throw new UsageError(`Cannot play the plan "${file}": ${(error as Error).message}`);
  }
}

/** @throws {Error} with one line that says what is wrong */
export function parsePlan(text: string): Plan {
  const json: unknown = JSON.parse(text);
  const plan = isObject(json) && "plan" in json ? json["plan"] : json;
  if (!isObject(plan)) throw new Error("it is no JSON object");
  need(Number.isInteger(plan["seed"]), "seed has to be an integer");
  need(isCount(plan["servers"]) && plan["servers"] >= 1, "servers has to be 1 or more");
  need(["each", "sampled"].includes(plan["access"] as string), 'access has to be "each" or "sampled"');
  need(isTime(plan["writeEveryMs"]) && plan["writeEveryMs"] >= 1, "writeEveryMs has to be 1 or more");
  for (const [index, kind] of listOf(plan, "kinds").entries()) checkKind(kind, `kinds[${index}]`);
  for (const [index, { run }] of listOf(plan, "programs").entries()) {
    need(
      PROGRAMS.some((name) => name === run),
      `programs[${index}].run has to be one of ${PROGRAMS.join(", ")}`,
    );
  }
  const actions = listOf(plan, "actions");
  for (const [index, action] of actions.entries()) {
    checkAction(action, `actions[${index}]`, plan as unknown as Plan);
  }
  return plan as unknown as Plan;
}

type JsonObject = Record<string, unknown>;

function checkKind({ plural, versions, createdIn, objects }: JsonObject, where: string): void {
  need(typeof plural === "string" && plural !== "", `${where}.plural has to be a string`);
  const isList = Array.isArray(versions) && versions.every((version) => typeof version === "string");
  need(isList && versions.length > 0, `${where}.versions has to be a list of strings`);
  need(isList && versions.includes(createdIn as string), `${where}.createdIn has to be one of its versions`);
  need(isCount(objects), `${where}.objects has to be 0 or more`);
}

function checkAction(action: JsonObject, where: string, plan: Plan): void {
  const { at, on, do: name, ms, writes, ...parameters } = action;
  need(typeof name === "string", `${where}.do has to be the name of an action`);
  need(isTime(at), `${where}.at has to be a number of milliseconds, 0 or more`);
  need(ms === undefined || isTime(ms), `${where}.ms has to be a number of milliseconds, 0 or more`);
  need(writes === undefined || isCount(writes), `${where}.writes has to be 0 or more`);
  if (on !== undefined) checkMoment(on, `${where}.on`);
  const shape = shapeOf(actionSort(name as string), plan);
  for (const [field, types] of shape) {
    if (field === "ms")
      need(!types.isAlways || ms !== undefined, `${where}: "${field}" is missing in "${name as string}"`);
    else checkField(field, types, parameters[field], `${where} ("${name as string}")`);
  }
  const unknown = Object.keys(parameters).find((field) => shape.size > 0 && !shape.has(field));
  need(unknown === undefined, `${where}: "${name as string}" has no "${unknown}"`);
}

function checkMoment(on: unknown, where: string): void {
  const { request, nth } = isObject(on) ? on : {};
  const isKnown = REQUEST_KINDS.some((kind) => kind === request);
  need(isKnown, `${where}.request has to be one of ${REQUEST_KINDS.join(", ")}`);
  need(isCount(nth) && nth >= 1, `${where}.nth has to be 1 or more`);
}

interface FieldShape {
  readonly types: Set<string>;
  /** Whether each action of this sort has the field. */
  isAlways: boolean;
}

function checkField(field: string, { types, isAlways }: FieldShape, value: unknown, where: string): void {
  if (value === undefined) return need(!isAlways, `${where}: "${field}" is missing`);
  need(types.has(typeof value), `${where}: "${field}" has to be a ${[...types].join(" or a ")}`);
}

const SAMPLES = 64;

/** Which parameters a sort of action has: those of a few that are chosen for the plan. */
function shapeOf(sort: ActionSort, { actions: _actions, ...world }: Plan): ReadonlyMap<string, FieldShape> {
  const shape = new Map<string, FieldShape>();
  let samples: object[];
  try {
    const random = randomFrom(1);
    const limits = { ...world, startAt: 0 };
    samples = Array.from({ length: SAMPLES }, () => sort.choose(random, limits));
  } catch {
    // There is nothing in this world that it could choose: then nothing is known about it.
    return shape;
  }
  for (const sample of samples) {
    for (const [field, value] of Object.entries(sample)) {
      const known = shape.get(field) ?? { types: new Set(), isAlways: true };
      known.types.add(typeof value);
      shape.set(field, known);
    }
  }
  shape.delete("at");
  for (const [field, known] of shape) known.isAlways = samples.every((sample) => Object.hasOwn(sample, field));
  return shape;
}

function need(isRight: boolean, message: string): void {
  if (!isRight) throw new Error(message);
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0;
}

function isTime(value: unknown): value is number {
  return Number.isFinite(value) && (value as number) >= 0;
}

function listOf(plan: JsonObject, field: string): readonly JsonObject[] {
  const list = plan[field];
  need(Array.isArray(list) && list.every(isObject), `${field} has to be a list of objects`);
  return list as JsonObject[];
}
