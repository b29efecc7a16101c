import type { Clock } from "../../clock.ts";
import { messageOf } from "../../errors.ts";
import type { ApiClient } from "../kube/client.ts";
import type { ApiServers, OpenNew } from "./api-servers.ts";
import { SAMPLES } from "./ask-all.ts";
import { type Answered, heardCount, unheardOf } from "./encryption-agreement.ts";
import { EncryptionMetrics } from "./encryption-metrics.ts";
import { kmsProblemOf } from "./kms-health.ts";
import { readMetrics } from "./metric-lines.ts";

/** What asking takes. */
export interface AskContext {
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** The metrics of an API server with thousands of resources may take so long, over a slow network, in milliseconds. */
const READ_TIMEOUT_MS = 60_000;
const SAMPLES_AT_ONCE = 4;
/** Of three API servers behind a load balancer that chooses at random, one is missed so once in ten million times. */
const MAX_SAMPLES = 40;
const LOST = "the connection was lost while it was asked, and another API server may have answered on the next one";

/** How each of the API servers says that it encrypts. */
export async function answersOf(context: AskContext, apiServers: ApiServers): Promise<readonly Answered[]> {
  if (apiServers.mode === "each") {
    return await Promise.all(apiServers.clients.map((client) => answerOf(context, client)));
  }
  return await sampledAnswers(context, apiServers);
}

/**
 * Each answer comes over one connection, and so from one API server: new ones are asked until each identity Lease was heard, and as many API servers as were told apart. Where no API
 * server has an EncryptionConfiguration none names its Lease, and a few answers are enough.
 */
async function sampledAnswers(
  context: AskContext,
  { clients = [], identities = [], open }: Extract<ApiServers, { mode: "sampled" }>,
): Promise<readonly Answered[]> {
  const answers: Answered[] = [];
  const areAllHeard = (): boolean =>
    unheardOf(identities, answers).length === 0 && heardCount(answers) >= clients.length;
  const isEnough = (): boolean =>
    answers.length >= MAX_SAMPLES ||
    ((identities.length > 0 || answers.length >= SAMPLES) && areAllHeard()) ||
    (answers.length >= SAMPLES && answers.every(({ isAbsent }) => isAbsent === true));
  do {
    answers.push(...(await Promise.all(Array.from({ length: SAMPLES_AT_ONCE }, () => answerOnNew(context, open)))));
  } while (!isEnough() && answers.every(({ isAbsent, shown }) => isAbsent === true || typeof shown !== "string"));
  return answers;
}

/** Its metrics and its health are of one API server where one connection carried both. */
async function answerOnNew(context: AskContext, open: OpenNew): Promise<Answered> {
  let connections = 0;
  const client = open(() => {
    connections++;
  });
  try {
    const answered = await answerOf(context, client);
    return connections > 1 ? { server: answered.server, shown: LOST } : answered;
  } finally {
    await client.transport.close();
  }
}

/** An API server that does not answer does not tell: it is asked again. */
async function answerOf({ clock, signal }: AskContext, { transport }: ApiClient): Promise<Answered> {
  const { server } = transport;
  const metrics = new EncryptionMetrics();
  const within = AbortSignal.any([signal, clock.timeout(READ_TIMEOUT_MS)]);
  try {
    await readMetrics(transport, within, (line) => metrics.add(line));
  } catch (error) {
    signal.throwIfAborted();
    return { server, shown: `its /metrics cannot be read: ${messageOf(error)}` };
  }
  const { isAbsent } = metrics;
  const shown = metrics.result();
  // After its metrics: the check that has an API server show a key is the one that its health is of.
  const hasKms = typeof shown !== "string" && shown.keys.size > 0;
  const problem = hasKms ? await kmsProblemOf(transport, within) : undefined;
  signal.throwIfAborted();
  return { server, shown: problem ?? shown, isAbsent };
}
