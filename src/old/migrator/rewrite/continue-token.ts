import { ApiError } from "../../kube/errors.ts";

/** Whether a page was refused because of its continue token: it expired (410), or was damaged on its way (400). */
export function isTokenFailure(error: unknown): error is ApiError {
  return error instanceof ApiError && (error.status === 410 || error.status === 400);
}

/**
 * The token to go on with after one was refused. The answer to an expired token carries one that goes on at the same
 * key in a newer state; `undefined` where it does not, which means the first page.
 *
 * https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
 */
export function nextTokenAfter(error: ApiError, refused: string): string | undefined {
  const token = error.status === 410 ? error.answer?.metadata?.continue : undefined;
  return token === "" || token === refused ? undefined : token;
}
