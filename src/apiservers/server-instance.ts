import { KsvmError } from "../errors.ts";
import { BodyTooLarge, boundedChunks } from "../kube/bounded-body.ts";
import { ApiError, DoubtfulAnswer, TransportError } from "../kube/errors.ts";
import { isForbidden } from "../kube/failure.ts";
import type { Transport } from "../kube/transport.ts";

const METRICS_PATH = "/metrics";
/** An API server with thousands of resources answers some tens of megabytes. They pass through, line by line. */
const MAX_METRICS_BYTES = 128 * 1024 * 1024;
/** One line of metrics, in characters: a line that is longer is none that counts here. */
const MAX_LINE_LENGTH = 4_096;

/** What metrics begin with, and no page of a proxy. */
const METRIC = /^(?:# (?:HELP|TYPE) |[a-zA-Z_:][\w:]*(?:\{.*\})? \S+$)/;
const START_TIME = /^process_start_time_seconds(?:\{[^}]*\})? (\S+)/;

/**
 * What tells the process of one API server from that of any other: when it started, to a hundredth of a second. One that
 * restarts is another one. Two that started at the same time count as one, and then one too few is found, never one too
 * many. Nothing is added that could change while the process lives, such as its certificate: that would count it twice.
 *
 * @throws {KsvmError} ApiServerMissing where the authorizer forbids /metrics, or they do not say it, or are too large.
 * @throws {ApiError | TransportError}; {DoubtfulAnswer} where the answer is not from an API server, as a proxy's page.
 */
export async function readServerInstance(transport: Transport, signal: AbortSignal): Promise<string> {
  try {
    const body = await transport.stream({ method: "GET", path: METRICS_PATH, accept: "text/plain", signal });
    const { areMetrics, instance } = await metricsIn(boundedChunks(body, MAX_METRICS_BYTES));
    if (instance !== undefined) {
      return instance;
    }
    if (!areMetrics) {
      throw new DoubtfulAnswer(`Cannot read ${METRICS_PATH} of ${transport.server}: the answer has no metrics`);
    }
  } catch (error) {
    signal.throwIfAborted();
    throw errorOf(error, transport.server);
  }
  throw indistinguishable("/metrics does not show process_start_time_seconds");
}

/** Whether {@link readServerInstance} failed because the authorizer forbids /metrics. A proxy's 403 is none of that. */
export function isInstanceForbidden(error: unknown): boolean {
  return isForbidden(error) || (error instanceof KsvmError && isForbidden(error.cause));
}

interface Metrics {
  readonly areMetrics: boolean;
  /** When the process that they are of started, as they say it; `undefined` where they do not. */
  readonly instance: string | undefined;
}

async function metricsIn(chunks: AsyncIterable<Buffer>): Promise<Metrics> {
  let areMetrics = false;
  let instance: string | undefined;
  // To its end: a body that is left half read ends the connection.
  for await (const line of linesOf(chunks)) {
    areMetrics ||= METRIC.test(line);
    instance ??= START_TIME.exec(line)?.[1];
  }
  return { areMetrics, instance };
}

async function* linesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of chunks) {
    const lines = (rest + chunk.toString("latin1")).split("\n");
    rest = (lines.pop() ?? "").slice(0, MAX_LINE_LENGTH);
    yield* lines;
  }
  yield rest;
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
