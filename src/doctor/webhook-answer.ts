import { isIP } from "node:net";
import { type JsonObject, listIn, objectIn, textIn } from "../api/json-fields.ts";
import { findReplicas, shakeHands } from "../certs/replicas.ts";
import { messageOf } from "../errors.ts";
import { WEBHOOK_GUARD } from "../old/freeze/guard.ts";
import { unlessForbidden } from "../old/kube/unless-forbidden.ts";
import type { KubeObject } from "../old/kube/client.ts";
import { WEBHOOK_CONFIGURATIONS } from "../old/kube/resources.ts";
import type { CallContext } from "../old/retry/call-context.ts";
import type { WebhookFacts } from "./doctor-types.ts";

const HTTPS_PORT = 443;

/**
 * Whether a server answers for ksvm's webhook: of a Service the API server knows the endpoints that serve, a URL is called from
 * here by a TLS handshake.
 * @throws {ApiError | TransportError | KsvmError}
 */
export async function webhookFacts(context: CallContext): Promise<WebhookFacts> {
  const { retrier, signal } = context;
  const find = () => unlessForbidden(async () => ({ found: await findConfiguration(context) }));
  const read = await retrier.run(find, signal);
  if (read === undefined) {
    return { state: "unknown", reason: "this user may not get it" };
  }
  if (read.found === undefined) {
    return { state: "absent" };
  }
  const config = objectIn(objectIn(listIn(read.found["webhooks"])[0])?.["clientConfig"]) ?? {};
  const url = textIn(config["url"]);
  return url === undefined ? serviceFacts(context, objectIn(config["service"]) ?? {}) : urlFacts(url, signal);
}

async function serviceFacts(
  { client, retrier, signal }: CallContext,
  { name, namespace }: JsonObject,
): Promise<WebhookFacts> {
  const names = { namespace: textIn(namespace) ?? "", service: textIn(name) ?? "" };
  const replicas = await retrier.run(() => findReplicas(client, names, signal), signal);
  if (replicas === undefined) {
    return { state: "unknown", reason: `this user may not list endpointslices in ${names.namespace}` };
  }
  return replicas.length > 0
    ? { state: "answers" }
    : { state: "silent", reason: `Service "${names.namespace}/${names.service}" has no endpoint that serves` };
}

function findConfiguration({
  client,
  signal,
}: CallContext): Promise<(KubeObject & Record<string, unknown>) | undefined> {
  return client.find(WEBHOOK_CONFIGURATIONS, WEBHOOK_GUARD, { signal });
}

async function urlFacts(text: string, signal: AbortSignal): Promise<WebhookFacts> {
  try {
    const { hostname, port } = new URL(text);
    const host = hostname.replaceAll(/[[\]]/g, "");
    const serverName = isIP(host) === 0 ? host : "";
    await shakeHands({ host, port: port === "" ? HTTPS_PORT : Number(port) }, serverName, signal);
    return { state: "answers" };
  } catch (error) {
    signal.throwIfAborted();
    return { state: "silent", reason: `${text} does not answer from here (${messageOf(error)})` };
  }
}
