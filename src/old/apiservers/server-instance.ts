import { KsvmError } from "../../errors.ts";
import { BodyTooLarge } from "../kube/bounded-body.ts";
import { ApiError, DoubtfulAnswer, TransportError } from "../kube/errors.ts";
import { isForbidden } from "../kube/failure.ts";
import type { Transport } from "../kube/transport.ts";
import { MAX_METRICS_BYTES, METRICS_PATH, readMetrics } from "./metric-lines.ts";

const START_TIME = /^process_start_time_seconds(?:\{[^}]*\})? (\S+)/;

/** What {@link readServerInstance} reads off one line of metrics; `undefined` on any other line. */
export function instanceIn(line: string): string | undefined {
  return START_TIME.exec(line)?.[1];
}

/**
 * What tells the process of one API server from that of any other: when it started, to a hundredth of a second. One that
 * restarts is another one. Two that started at the same time count as one, and then one too few is found, never one too
 * many. Nothing is added that could change while the process lives, such as its certificate: that would count it twice.
 *
 * @throws {KsvmError} ApiServerMissing where the authorizer forbids /metrics, or they do not say it, or are too large.
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is not from an API server, as a proxy's page.
 */
export async function readServerInstance(transport: Transport, signal: AbortSignal): Promise<string> {
  let instance: string | undefined;
  try {
    await readMetrics(transport, signal, (line) => {
      instance ??= instanceIn(line);
    });
  } catch (error) {
    signal.throwIfAborted();
    throw errorOf(error, transport.server);
  }
  if (instance === undefined) {
    throw indistinguishable("/metrics does not show process_start_time_seconds");
  }
  return instance;
}

/** Whether {@link readServerInstance} failed because the authorizer forbids /metrics. A proxy's 403 is none of that. */
export function isInstanceForbidden(error: unknown): boolean {
  return isForbidden(error) || (error instanceof KsvmError && isForbidden(error.cause));
}

function errorOf(error: unknown, server: string): unknown {
  if (error instanceof BodyTooLarge) {
    return indistinguishable(`/metrics has more than ${MAX_METRICS_BYTES} bytes`);
  }
  if (isForbidden(error)) {
    return indistinguishable('this user may not get the nonResourceURL "/metrics"; grant that', error);
  }
  if (error instanceof ApiError && error.status === 403) {
    return new DoubtfulAnswer(error.message, error);
  }
  // Where the body breaks off, the stream's own error comes.
  return error instanceof KsvmError ? error : new TransportError(`GET ${METRICS_PATH}`, server, error);
}

function indistinguishable(reason: string, cause?: unknown): KsvmError {
  const text = `Cannot tell the API servers behind one address apart: ${reason}, or name each with --apiserver-endpoints`;
  return new KsvmError("ApiServerMissing", text, { cause });
}
