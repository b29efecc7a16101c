import { MUTATIONS } from "../mutations.ts";
import { UsageError } from "../runner/usage-error.ts";
import type { Mutation } from "./mutation.ts";

/** @throws {UsageError} where there is none of that name */
export function mutationNamed(name: string): Mutation {
  const mutation = MUTATIONS.find((one) => one.name === name);
  if (mutation === undefined)
    throw new UsageError(`There is no mutation "${name}": test/simulation/mutations/ has them`);
  return mutation;
}
