import { plainError } from "./answers.ts";
import type { ModelMeta, ModelObject } from "./model-object.ts";
import type { ServedKind } from "./served-kinds.ts";
import type { ServerContext } from "./server-context.ts";
import type { WebhookAnswer } from "./types.ts";

/** The API server's own limit for a call of a conversion webhook. */
const TIMEOUT_MS = 30_000;

/** Whether the versions of a resource differ by more than their name. */
export function isConvertedByWebhook({ crd }: ServedKind): boolean {
  return crd?.facts.conversionUrl !== undefined;
}

/**
 * Asks the conversion webhook of a CRD for one object.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go
 * @throws {Refusal} without a reason, in the API server's words, where it gives none.
 */
export async function convert(
  context: ServerContext,
  kind: ServedKind,
  object: ModelObject,
  apiVersion: string,
): Promise<ModelObject> {
  const url = kind.crd?.facts.conversionUrl ?? "";
  const uid = context.etcd.nextId();
  const request = { uid, desiredAPIVersion: apiVersion, objects: [object] };
  const review = { kind: "ConversionReview", apiVersion: "apiextensions.k8s.io/v1", request };
  const answer = await context.io.callWebhook(`${url}?timeout=30s`, JSON.stringify(review), TIMEOUT_MS);
  const of = `conversion webhook for ${object.apiVersion}, Kind=${kind.kind}`;
  const said = "error" in answer ? { error: `Post ${JSON.stringify(`${url}?timeout=30s`)}: ${answer.error}` } : answer;
  const converted = convertedObjects(of, uid, said);
  if (converted.length !== 1) throw plainError(`${of} returned ${converted.length} objects, expected 1`);
  const result = converted[0] as ModelObject;
  const problem = problemWith(object, result, apiVersion);
  if (problem !== undefined) throw plainError(`${of} returned invalid object${problem}`);
  // Labels and annotations are all that a webhook may change of the metadata.
  return { ...result, metadata: restoredMeta(object.metadata, result.metadata) };
}

function convertedObjects(of: string, uid: string, answer: WebhookAnswer): readonly unknown[] {
  if ("error" in answer) throw plainError(`${of} failed: ${answer.error}`);
  if (answer.status !== 200) throw plainError(`${of} failed: ${statusText(answer)}`);
  const { response } = parsed(of, answer.body) as {
    response?: { uid?: string; result?: { status?: string; message?: string }; convertedObjects?: readonly unknown[] };
  };
  if (response === undefined) throw plainError(`${of} failed: no response provided`);
  if (response.uid !== uid) {
    throw plainError(
      `${of} failed: expected response.uid=${JSON.stringify(uid)}, got ${JSON.stringify(response.uid ?? "")}`,
    );
  }
  const { message = "", status = "" } = response.result ?? {};
  if (status !== "Success") {
    throw plainError(
      `${of} failed: ${message === "" ? `response.result.status was '${status}', not 'Success'` : message}`,
    );
  }
  return response.convertedObjects ?? [];
}

function parsed(of: string, body: string): unknown {
  try {
    return JSON.parse(body);
  } catch (error) {
    throw plainError(`${of} failed: ${String(error)}`);
  }
}

function problemWith(before: ModelObject, after: ModelObject, apiVersion: string): string | undefined {
  if (after.apiVersion !== apiVersion) {
    return ` at index 0: invalid groupVersion (expected ${apiVersion}, received ${after.apiVersion})`;
  }
  if (after.kind !== before.kind) return ` at index 0: invalid kind (expected ${before.kind}, received ${after.kind})`;
  for (const [field, label] of [
    ["name", "name"],
    ["namespace", "namespace"],
    ["uid", "UID"],
  ] as const) {
    const [e, a] = [before.metadata[field] ?? "", after.metadata?.[field] ?? ""];
    if (e !== a) return `: must have the same ${label}: ${e} != ${a}`;
  }
  return undefined;
}

function restoredMeta(before: ModelMeta, { annotations, labels }: ModelMeta): ModelMeta {
  const { annotations: _annotations, labels: _labels, ...rest } = before;
  return {
    ...rest,
    ...(annotations === undefined ? {} : { annotations }),
    ...(labels === undefined ? {} : { labels }),
  };
}

/** What client-go makes of an answer that is no Status. */
export function statusText({ body, status }: { readonly status: number; readonly body: string }): string {
  const texts: Readonly<Record<number, string>> = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: body,
    404: "the server could not find the requested resource",
    409: "the server reported a conflict",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
  };
  const fallback =
    status >= 500
      ? `an error on the server (${JSON.stringify(body === "" ? "unknown" : body)}) has prevented the request from succeeding`
      : `the server responded with the status code ${status} but did not return more information`;
  return texts[status] ?? fallback;
}
