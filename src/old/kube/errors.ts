import { KsvmError } from "../../errors.ts";

export { ApiError, isInvalid } from "../../kube/errors.ts";

/**
 * An answer that is no proof of what it seems to say, such as a 404 for what the API server lists: it comes from a proxy,
 * from an API server that is starting, or from one of several that has not followed yet. The next one may be better.
 */
export class DoubtfulAnswer extends KsvmError {
  override readonly name = "DoubtfulAnswer";

  constructor(message: string, cause?: unknown) {
    super("ApiRequestFailed", message, { cause });
  }
}
