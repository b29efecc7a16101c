import { boundedChunks } from "../kube/bounded-body.ts";
import { DoubtfulAnswer } from "../kube/errors.ts";
import type { Transport } from "../kube/transport.ts";

/** Where an API server shows its metrics. */
export const METRICS_PATH = "/metrics";
/** An API server with thousands of resources answers some tens of megabytes. They pass through, line by line. */
export const MAX_METRICS_BYTES = 128 * 1024 * 1024;
/** One line of metrics, in characters: a line that is longer is none that counts here. */
const MAX_LINE_LENGTH = 4_096;

/** What metrics begin with, and no page of a proxy. */
const METRIC = /^(?:# (?:HELP|TYPE) |[a-zA-Z_:][\w:]*(?:\{.*\})? \S+$)/;

/**
 * Reads the metrics of one API server, line by line, to their end: a body that is left half read ends the connection.
 * @throws {DoubtfulAnswer} where the answer has no metrics, as a proxy's page.
 * @throws {BodyTooLarge} beyond {@link MAX_METRICS_BYTES}; {ApiError | TransportError}; the body's own error where it breaks off.
 */
export async function readMetrics(
  transport: Transport,
  signal: AbortSignal,
  onLine: (line: string) => void,
): Promise<void> {
  const body = await transport.stream({ method: "GET", path: METRICS_PATH, accept: "text/plain", signal });
  let areMetrics = false;
  let rest = "";
  const take = (line: string): void => {
    areMetrics ||= METRIC.test(line);
    onLine(line);
  };
  for await (const chunk of boundedChunks(body, MAX_METRICS_BYTES)) {
    // Without a promise for each of tens of thousands of lines.
    const lines = (rest + chunk.toString("latin1")).split("\n");
    rest = (lines.pop() ?? "").slice(0, MAX_LINE_LENGTH);
    for (const line of lines) take(line);
  }
  take(rest);
  if (!areMetrics) {
    throw new DoubtfulAnswer(`Cannot read ${METRICS_PATH} of ${transport.server}: the answer has no metrics`);
  }
}
