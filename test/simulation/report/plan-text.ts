import type { Names } from "../actions/action-sort.ts";
import { actionSort } from "../actions/all-actions.ts";
import type { Action, Plan } from "../plan.ts";
import type { RequestMoment } from "../world/request-triggers.ts";

/** What a plan is, for people: the world, and then what happens in it. One line each. */
export function planText(plan: Plan): readonly string[] {
  return [
    ...worldText(plan),
    ...plan.actions.map((action) => `${timeText(action.at).padStart(10)}  ${actionText(action, plan)}`),
  ];
}

/** `API server 0 stands still, for 3 s; users write 5 times`. */
export function actionText(action: Action, plan: Pick<Plan, "kinds">): string {
  const { at: _at, on, do: name, ms, writes, ...parameters } = action;
  const sort = actionSort(name);
  const names = { ...NAMES, crd: (index: number) => plan.kinds[index]?.plural ?? `no. ${index}, which is not there` };
  const what = sort.text?.(action, names) ?? `${wordsOf(name)}${parametersText(parameters)}`;
  const lasts = ms === undefined ? "" : `, for ${timeText(ms)}`;
  return `${on === undefined ? "" : momentText(on)}${what}${lasts}${writes === undefined ? "" : `; users write ${writes === 1 ? "once" : `${writes} times`}`}`;
}

/** `when ksvm sends request "freeze" no. 2: `, for what is not done at a time. */
function momentText({ request, nth, afterMs, holdMs }: RequestMoment): string {
  const after = (afterMs ?? 0) > 0 ? `${timeText(afterMs ?? 0)} after` : "when";
  const held = (holdMs ?? 0) > 0 ? `, which takes ${timeText(holdMs ?? 0)} to arrive` : "";
  return `${after} ksvm sends request "${request}" no. ${nth}${held}: `;
}

/** `950 ms`, `1.5 s`, `12 min`; three digits at the most, of milliseconds. */
export function timeText(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 600_000) return `${Number((ms / 1_000).toPrecision(ms < 100_000 ? 3 : 4))} s`;
  return `${Number((ms / 60_000).toPrecision(3))} min`;
}

const NAMES: Omit<Names, "crd"> = {
  server: (index) => `API server ${index}`,
  program: (index) => `program ${index}`,
  time: timeText,
};

function worldText({
  seed,
  servers,
  access,
  kinds,
  programs,
  writeEveryMs,
  actions: _actions,
  ...more
}: Plan): readonly string[] {
  const reached = access === "each" ? "each at an address of its own" : "all behind one address";
  const plural = servers === 1 ? "" : "s";
  return [
    `${servers} API server${plural}, ${servers === 1 ? "" : `${reached}; `}a user writes about every ${timeText(writeEveryMs)}; seed ${seed}`,
    ...kinds.map(
      ({ plural: name, versions, createdIn, objects, isBuiltIn, ...rest }) =>
        `${name}${isBuiltIn === true ? " (built-in)" : ""}: ${objects} object${objects === 1 ? "" : "s"}, versions ${versions.join(", ")}, stored in ${createdIn} at first${parametersText(rest)}`,
    ),
    ...programs.map(
      ({ run, kind, force, verifies = false, ...rest }, slot) =>
        `program ${slot}: ksvm ${verifies ? "verify" : wordsOf(run)}${run === "migrate" || run === "reencrypt" ? ` ${kinds[kind]?.plural ?? `no. ${kind}`}` : ""}${force ? " --force" : ""}${parametersText(rest)}`,
    ),
    ...Object.entries(more).map((field) => fieldText(field)),
  ];
}

function parametersText(parameters: object): string {
  const fields = Object.entries(parameters).map((field) => fieldText(field));
  return fields.length === 0 ? "" : `: ${fields.join(", ")}`;
}

/** `age 1.5 s` of `ageMs`. */
function fieldText([name, value]: readonly [string, unknown]): string {
  const isTime = name.endsWith("Ms") && typeof value === "number" && value >= 0;
  return isTime ? `${wordsOf(name.slice(0, -2))} ${timeText(value)}` : `${wordsOf(name)} ${JSON.stringify(value)}`;
}

/** `recreateCrd` is `recreate crd`. */
function wordsOf(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}
