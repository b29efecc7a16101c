import { messageOf } from "../../../errors.ts";
import { ApiError, isInvalid } from "../../kube/errors.ts";
import { failedWebhookOf, isAdmissionDenial } from "../../kube/failure.ts";

/** Why an object could not be rewritten, on one line. */
export function reasonOf(error: unknown): string {
  return error instanceof ApiError ? error.said.replaceAll(/\s*\n\s*/g, " ") : messageOf(error);
}

/**
 * A plain 500 may come from the object itself; 429, 502 to 504, broken connections, a webhook that is down and an etcd
 * that is in trouble do not.
 */
export function isOfTheObject(error: unknown): boolean {
  const isPlain = error instanceof ApiError && error.status === 500 && failedWebhookOf(error) === undefined;
  return isPlain && !error.said.includes("etcdserver: ");
}

/** Whether validation or admission refused the values of an object: another way to write it may not be held to the same rule. */
export function isAboutValues(error: unknown): boolean {
  return isAdmissionDenial(error) || isInvalid(error);
}
