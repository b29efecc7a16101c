import { messageOf } from "../../errors.ts";
import { boundedChunks } from "../kube/bounded-body.ts";
import { ApiError } from "../kube/errors.ts";
import type { Transport } from "../kube/transport.ts";

const HEALTH_PATH = "/healthz";
/** An API server names some eighty checks. */
const MAX_BYTES = 256 * 1024;
/** What the checks of KMS plugins are called: `kms-provider-0` and so on, or `kms-providers` where the configuration is read again by itself. */
const KMS_CHECK = "kms-provider";
/** A line of the answer: a check that passed, or one that failed. */
const CHECK = /\[([+-])\](\S+)/g;

/**
 * Why an API server may encrypt with another key of a KMS v2 plugin than the one that its metrics show; `undefined` where it does not. It notes a key as soon as the
 * plugin names it, and goes on with the one before where the plugin cannot encrypt with it: no object is stale to it then, and none is written
 * again. Its health check fails in that case.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go
 */
export async function kmsProblemOf(transport: Transport, signal: AbortSignal): Promise<string | undefined> {
  try {
    const passed = checksIn(await healthOf(transport, signal), "+");
    return passed.some((name) => name.startsWith(KMS_CHECK))
      ? undefined
      : `its ${HEALTH_PATH} does not show its KMS plugins`;
  } catch (error) {
    const failed = error instanceof ApiError ? checksIn(error.said, "-") : [];
    const reason =
      failed.length === 0 ? messageOf(error) : `${failed.join(", ")} failed, see the log of the API server`;
    return `its ${HEALTH_PATH} does not say that its KMS plugins encrypt with the keys that they name: ${reason}`;
  }
}

/** Those that passed, or those that failed. */
function checksIn(text: string, sign: "+" | "-"): readonly string[] {
  return [...text.matchAll(CHECK)].flatMap(([, of, name = ""]) => (of === sign ? [name] : []));
}

/** @throws {ApiError} where a check failed, with the beginning of the answer; {TransportError}. */
async function healthOf(transport: Transport, signal: AbortSignal): Promise<string> {
  const query = { verbose: "true" };
  const body = await transport.stream({ method: "GET", path: HEALTH_PATH, query, accept: "text/plain", signal });
  let text = "";
  for await (const chunk of boundedChunks(body, MAX_BYTES)) {
    text += chunk.toString("latin1");
  }
  return text;
}
