import { ApiError, DoubtfulAnswer } from "./errors.ts";
import { isForbidden } from "./failure.ts";

/**
 * What is read; `undefined` where the authorizer refused. Nothing else in an API server answers a read with a 403: a proxy
 * did, and its next answer may be another one.
 * @throws {DoubtfulAnswer} for any other 403; what `read` throws.
 */
export async function unlessForbidden<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (isForbidden(error)) {
      return undefined;
    }
    const isProxys = error instanceof ApiError && error.status === 403;
    throw isProxys ? new DoubtfulAnswer(error.message, error) : error;
  }
}
