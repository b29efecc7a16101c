import { badRequest, invalid, Refusal } from "./answers.ts";
import { applied, managedByUpdate } from "./managed-fields.ts";
import { isFields, type ModelObject } from "./model-object.ts";
import { assertKind, withManaged, writerOf } from "./object-meta.ts";
import { jsonPatched, mergePatched } from "./patches.ts";
import { decoded } from "./strategies.ts";
import type { ServerContext } from "./server-context.ts";
import type { ModelRequest } from "./types.ts";
import { type Change, parsedBody, type Write } from "./write-request.ts";

/** What a request asks to be answered: whole objects, or their metadata. */
export function isMetadataAsked({ headers }: ModelRequest): boolean {
  return headers["accept"]?.includes("as=PartialObjectMetadata") === true;
}

/** What the query and the headers of a write say. A DELETE with a body says by that alone whether it is a dry-run. */
export function writeOptionsOf({ body, headers, method, query, user }: ModelRequest): WriteOptions {
  const asked = method === "DELETE" && body !== "" ? dryRunIn(parsedBody(body)) : query.get("dryRun");
  if (asked !== null && asked !== "All") {
    const cause = { field: "dryRun", body: `Unsupported value: ${JSON.stringify(asked)}: supported values: "All"` };
    throw invalid({ group: "meta.k8s.io", kind: OPTIONS[method] ?? "" }, "", [
      { ...cause, reason: "FieldValueNotSupported" },
    ]);
  }
  const fieldManager = query.get("fieldManager") ?? undefined;
  const userAgent = (headers["user-agent"] ?? "").split("/")[0] ?? "";
  const manager = fieldManager ?? (userAgent === "" ? "unknown" : userAgent);
  return { user, isDryRun: asked === "All", fieldManager, manager };
}

type WriteOptions = Pick<Write, "fieldManager" | "isDryRun" | "manager" | "user">;

const OPTIONS: Readonly<Record<string, string>> = {
  POST: "CreateOptions",
  PUT: "UpdateOptions",
  PATCH: "PatchOptions",
  DELETE: "DeleteOptions",
};

function dryRunIn(options: unknown): string | null {
  return (options as { readonly dryRun?: readonly string[] } | null)?.dryRun?.[0] ?? null;
}

/** What a PATCH changes, and whether it also creates. @throws {Refusal} */
export function patchOf(
  context: ServerContext,
  write: Write,
  request: ModelRequest,
): { readonly change: Change; readonly mayCreate: boolean } {
  const type = (request.headers["content-type"] ?? "").split(";")[0];
  const { kind, manager, subresource } = write;
  const writer = writerOf(context, kind, { manager, subresource });
  if (type === "application/apply-patch+yaml") {
    return { change: applyChange(write, request, writer), mayCreate: true };
  }
  const patch = type === "application/json-patch+json" ? jsonPatched : mergePatched;
  if (patch === mergePatched && type !== "application/merge-patch+json") throw unsupported();
  if (request.query.has("force")) {
    const body = "Forbidden: may not be specified for non-apply patch";
    throw invalid({ group: "meta.k8s.io", kind: "PatchOptions" }, "", [
      { field: "force", body, reason: "FieldValueForbidden" },
    ]);
  }
  const body = parsedBody(request.body);
  if (patch === mergePatched && !isFields(body)) throw badRequest("error decoding patch: expected an object");
  const change: Change = (current, problem) => {
    const patched = decoded(kind, patch(current, body) as ModelObject);
    return withManaged(patched, problem === undefined ? managedByUpdate(current, patched, writer) : undefined);
  };
  return { change, mayCreate: false };
}

function applyChange(
  { fieldManager, kind }: Write,
  request: ModelRequest,
  writer: ReturnType<typeof writerOf>,
): Change {
  if (fieldManager === undefined) {
    const cause = {
      field: "fieldManager",
      body: "Required value: is required for apply patch",
      reason: "FieldValueRequired",
    };
    throw invalid({ group: "meta.k8s.io", kind: "PatchOptions" }, "", [cause]);
  }
  const config = parsedBody(request.body);
  const given = isFields(config) ? ((config as Partial<ModelObject>).apiVersion ?? "") : "";
  if (given !== "" && given !== kind.apiVersion) {
    throw badRequest(
      `Incorrect version specified in apply patch. Specified patch version: ${given}, expected: ${kind.apiVersion}`,
    );
  }
  assertKind(config, kind);
  if (config.metadata.managedFields !== undefined) throw badRequest("metadata.managedFields must be nil");
  const force = request.query.get("force") === "true";
  return (current, problem) => {
    if (problem !== undefined) throw problem;
    return applied(current, config, { ...writer, force });
  };
}

/** What a PUT changes. */
export function replacementOf(context: ServerContext, write: Write, request: ModelRequest): Change {
  const { kind, manager, name, subresource } = write;
  const body = parsedBody(request.body);
  assertKind(body, kind);
  const writer = writerOf(context, kind, { manager, subresource });
  return (current, problem) => {
    // Built-in resources may be replaced without one, custom resources and CRDs may not.
    if (
      body.metadata.resourceVersion === undefined &&
      (kind.crd !== undefined || kind.group === "apiextensions.k8s.io")
    ) {
      const cause = { field: "metadata.resourceVersion", body: "Invalid value: 0: must be specified for an update" };
      throw invalid({ group: kind.group, kind: kind.resource }, name, [cause]);
    }
    const replacement = decoded(kind, body);
    const managed = problem === undefined ? managedByUpdate(current, replacement, writer) : undefined;
    return withManaged(replacement, managed);
  };
}

function unsupported(): Refusal {
  const message =
    "the body of the request was in an unknown format - accepted media types include: " +
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
  return new Refusal({ code: 415, reason: "UnsupportedMediaType", message });
}

/** The preconditions of a DELETE. */
export function preconditionsOf({ body }: ModelRequest): Preconditions {
  const options = (body === "" ? {} : parsedBody(body)) as { readonly preconditions?: Preconditions };
  return options.preconditions ?? {};
}

/** What a DELETE asks of the object that is there. */
export interface Preconditions {
  readonly uid?: string;
  readonly resourceVersion?: string;
}
