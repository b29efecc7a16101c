import type { ActionSort } from "./action.ts";
import { PROGRAM_ACTIONS } from "./programs.ts";
import { SERVER_ACTIONS } from "./servers.ts";
import { USER_ACTIONS } from "./users.ts";
import { WEBHOOK_ACTIONS } from "./webhooks.ts";

/** Each sort of thing that happens in simulated worlds. */
export const ACTIONS: readonly ActionSort[] = [
  ...USER_ACTIONS,
  ...SERVER_ACTIONS,
  ...PROGRAM_ACTIONS,
  ...WEBHOOK_ACTIONS,
];

const BY_NAME = new Map(ACTIONS.map((sort) => [sort.name, sort]));

/** @throws {RangeError} where there is none of that name. */
export function actionSort(name: string): ActionSort {
  const sort = BY_NAME.get(name);
  if (sort === undefined)
    throw new RangeError(`there is no action "${name}"; there are: ${[...BY_NAME.keys()].join(", ")}`);
  return sort;
}
