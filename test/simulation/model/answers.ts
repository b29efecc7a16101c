import type { Status } from "../../../src/api/meta.ts";
import type { ModelObject } from "./etcd.ts";

/** One HTTP request, as it reaches an API server of the model. */
export interface ModelRequest {
  readonly method: string;
  /** The path without a query, each segment encoded. */
  readonly path: string;
  readonly query: URLSearchParams;
  /** By names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** Empty where there is none. */
  readonly body: string;
  /** The user that the API server takes the sender for. */
  readonly user: string;
}

/** Takes what a watch tells, until it is ended from either side. */
export interface WatchSink {
  /** One event as a line of JSON, without the line break. */
  event(line: string): void;
  /** The API server ends the watch: in order, or with an error where the connection breaks. */
  end(error?: Error): void;
}

/** What an API server of the model answers. */
export interface ModelAnswer {
  readonly status: number;
  /** By names in lower case; `date` among them. */
  readonly headers: Readonly<Record<string, string>>;
  /** The whole body, or what opens a watch; that returns what ends it from the side of the client. */
  readonly body: string | ((sink: WatchSink) => () => void);
}

/** Where an API server may be held, or go on later, while it works on a request. */
export type HoldPoint =
  /** The request is authorized, and bound to the handler that this API server has at this moment. */
  | "bound"
  /** The object was read, the change was made to it, and admission let it pass; the write to etcd comes next. */
  | "admitted"
  /** Written, and not yet answered. */
  | "written";

/** A webhook's answer: what came over the network, or why nothing came. */
export type WebhookAnswer = { readonly status: number; readonly body: string } | { readonly error: string };

/** What an API server of the model needs of the world around it. */
export interface ModelIo {
  /** Awaited at each of these points. The simulation decides how long; a server that crashed never goes on. */
  hold(point: HoldPoint): Promise<void>;
  /** Calls a webhook, admission or conversion, at this URL. */
  callWebhook(url: string, body: string, timeoutMs: number): Promise<WebhookAnswer>;
}

/** The clock of one API server. */
export interface ServerClock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
}

/** A resource as errors name it. */
interface NamedResource {
  readonly group: string;
  readonly resource: string;
}

type Details = NonNullable<Status["details"]>;

/** Ends a request with a Status. The words are those of k8s.io/apimachinery/pkg/api/errors at v0.36.3. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly status: Status & { readonly apiVersion: "v1"; readonly code: number };

  constructor(status: Pick<Status, "message" | "reason" | "metadata" | "details"> & { readonly code: number }) {
    super(status.message ?? "");
    const { code, details, message, metadata = {}, reason } = status;
    this.status = {
      kind: "Status",
      apiVersion: "v1",
      metadata,
      status: "Failure",
      ...(message === undefined ? {} : { message }),
      ...(reason === undefined ? {} : { reason }),
      ...(details === undefined ? {} : { details }),
      code,
    };
  }
}

/** The path is not served: the answer is plain text. */
export class PathNotServed extends Error {
  override readonly name = "PathNotServed";
}

/** `widgets.example.com`; `secrets` in the core group. */
export function resourceText({ group, resource }: NamedResource): string {
  return group === "" ? resource : `${resource}.${group}`;
}

export function notFound(of: NamedResource, name: string): Refusal {
  return new Refusal({
    code: 404,
    reason: "NotFound",
    details: detailsOf(of, name),
    message: `${resourceText(of)} ${JSON.stringify(name)} not found`,
  });
}

export function alreadyExists(of: NamedResource, name: string, suffix = ""): Refusal {
  return new Refusal({
    code: 409,
    reason: "AlreadyExists",
    details: detailsOf(of, name),
    message: `${resourceText(of)} ${JSON.stringify(name)} already exists${suffix}`,
  });
}

export function conflict(of: NamedResource, name: string, why: string): Refusal {
  return new Refusal({
    code: 409,
    reason: "Conflict",
    details: detailsOf(of, name),
    message: `Operation cannot be fulfilled on ${resourceText(of)} ${JSON.stringify(name)}: ${why}`,
  });
}

/** What a write answers whose resourceVersion is not that of the object. */
export function modified(of: NamedResource, name: string): Refusal {
  return conflict(
    of,
    name,
    "the object has been modified; please apply your changes to the latest version and try again",
  );
}

export function forbidden(of: NamedResource, name: string, why: string): Refusal {
  const subject = name === "" ? "" : ` ${JSON.stringify(name)}`;
  return new Refusal({
    code: 403,
    reason: "Forbidden",
    details: detailsOf(of, name),
    message: `${resourceText(of)}${subject} is forbidden: ${why}`,
  });
}

/** One thing that is wrong with an object. */
export interface InvalidField {
  readonly field: string;
  /** Such as `Invalid value: "x": field is immutable`. */
  readonly body: string;
  /** @default FieldValueInvalid */
  readonly reason?: string;
}

export function invalid(
  of: { readonly group: string; readonly kind: string },
  name: string,
  causes: readonly InvalidField[],
): Refusal {
  const kind = of.group === "" ? of.kind : `${of.kind}.${of.group}`;
  const texts = [...new Set(causes.map(({ body, field }) => `${field}: ${body}`))];
  const all = texts.length === 1 ? texts[0] : `[${texts.join(", ")}]`;
  return new Refusal({
    code: 422,
    reason: "Invalid",
    details: {
      ...(name === "" ? {} : { name }),
      ...(of.group === "" ? {} : { group: of.group }),
      kind: of.kind,
      causes: causes.map(({ body, field, reason = "FieldValueInvalid" }) => ({ reason, message: body, field })),
    },
    message: `${kind} ${JSON.stringify(name)} is invalid: ${all}`,
  });
}

export function badRequest(message: string): Refusal {
  return new Refusal({ code: 400, reason: "BadRequest", message });
}

export function internalError(message: string): Refusal {
  return new Refusal({
    code: 500,
    reason: "InternalError",
    details: { causes: [{ message }] },
    message: `Internal error occurred: ${message}`,
  });
}

/** A plain error of Go, which has neither reason nor details. */
export function plainError(message: string): Refusal {
  return new Refusal({ code: 500, message });
}

/** @param continueToken to go on with, from the state of now */
export function expired(message: string, continueToken?: string): Refusal {
  const metadata = continueToken === undefined ? {} : { continue: continueToken };
  return new Refusal({ code: 410, reason: "Expired", message, metadata });
}

function detailsOf({ group, resource }: NamedResource, name: string): Details {
  return { ...(name === "" ? {} : { name }), ...(group === "" ? {} : { group }), kind: resource };
}

/** An answer in JSON. @param now milliseconds since the Unix epoch */
export function jsonAnswer(status: number, body: ModelAnswer["body"], now: number): ModelAnswer {
  return { status, headers: { "content-type": "application/json", date: httpDate(now) }, body };
}

/** An answer to a request that ended with an error. @throws the error, where it is a fault of the model */
export function errorAnswer(error: unknown, now: number): ModelAnswer {
  if (error instanceof Refusal) {
    const { status } = error;
    const { retryAfterSeconds } = status.details ?? {};
    const answer = jsonAnswer(status.code, JSON.stringify(status), now);
    return retryAfterSeconds === undefined
      ? answer
      : { ...answer, headers: { ...answer.headers, "retry-after": String(retryAfterSeconds) } };
  }
  if (error instanceof PathNotServed) return textAnswer(404, "404 page not found\n", { now });
  throw error;
}

/** @param version of the format of metrics, such as `0.0.4` */
export function textAnswer(
  status: number,
  body: string,
  { now, version }: { readonly now: number; readonly version?: string },
): ModelAnswer {
  const type = `text/plain; ${version === undefined ? "" : `version=${version}; `}charset=utf-8${version === undefined ? "" : "; escaping=underscores"}`;
  return { status, headers: { "content-type": type, date: httpDate(now) }, body };
}

/** By seconds: the clocks of API servers differ a little. */
const dates = new Map<number, string>();
const MAX_DATES = 100;

function httpDate(now: number): string {
  const second = Math.floor(now / 1_000);
  let text = dates.get(second);
  if (text === undefined) {
    if (dates.size >= MAX_DATES) dates.clear();
    dates.set(second, (text = new Date(second * 1_000).toUTCString()));
  }
  return text;
}

/** What a resourceVersion of a query says. */
export function revisionOf(text: string): number {
  return Number(text);
}

/** Whether an object is selected. */
export type Selector = (object: ModelObject) => boolean;

/** What a query selects; `undefined` where it selects everything. @throws {Refusal} 400 */
export function selectorOf(query: URLSearchParams): Selector | undefined {
  const labels = query.get("labelSelector") ?? "";
  const fields = query.get("fieldSelector") ?? "";
  if (labels === "" && fields === "") return undefined;
  const requirements = [
    ...(labels === "" ? [] : labels.split(",").map(labelRequirement)),
    ...(fields === "" ? [] : fields.split(",").map(fieldRequirement)),
  ];
  return (object) => requirements.every((requirement) => requirement(object));
}

/** Of what label selectors can say, `a=b`, `a!=b`, `a` and `!a`. */
function labelRequirement(text: string): Selector {
  const [, key = "", operator = "", value = ""] = /^(!?[^!=]+)(!=|==?)?(.*)$/.exec(text.trim()) ?? [];
  if (key.startsWith("!")) return ({ metadata }) => metadata.labels?.[key.slice(1)] === undefined;
  if (operator === "") return ({ metadata }) => metadata.labels?.[key] !== undefined;
  return ({ metadata }) => (metadata.labels?.[key] === value) === (operator !== "!=");
}

function fieldRequirement(text: string): Selector {
  const [, field = "", operator = "", value = ""] = /^([^!=]+)(!=|==?)(.*)$/.exec(text.trim()) ?? [];
  const name = { "metadata.name": "name", "metadata.namespace": "namespace" }[field];
  if (name === undefined) throw badRequest(`field label not supported: ${field}`);
  return ({ metadata }) => (metadata[name] === value) === (operator !== "!=");
}
