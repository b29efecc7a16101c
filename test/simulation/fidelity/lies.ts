import type { Answer, Json, LineRequest, ObjectKey, StoredEntry, Told } from "./line.ts";
import { ModelWorld } from "./model-world.ts";

/** One way in which a model could be wrong. */
export interface Lie {
  readonly name: string;
  readonly ofRequest?: (request: LineRequest) => LineRequest;
  readonly ofAnswer?: (answer: Answer, request: LineRequest) => Answer;
  readonly ofStored?: (entry: StoredEntry | undefined) => StoredEntry | undefined;
  /** `undefined` for an event that is not told. */
  readonly ofEvent?: (told: Told) => Told | undefined;
}

const CONFIG_INFO = /^apiserver_encryption_config_controller_last_config_info.*$/gm;

/** Each has to be found by the script. */
export const LIES: readonly Lie[] = [
  { name: "a patch is no conflict where the resourceVersion is stale", ofRequest: withoutMeta("resourceVersion") },
  { name: "a patch lands on an object with another uid", ofRequest: withoutMeta("uid") },
  {
    name: "a dry-run is stored",
    ofRequest: (request) => ({ ...request, query: { ...request.query, dryRun: undefined } }),
  },
  {
    name: "a deletion looks at no precondition",
    ofRequest: (request) => (request.method === "DELETE" ? { ...request, body: {} } : request),
  },
  {
    name: "an apply with a uid creates what is gone",
    ofRequest: (request) => (request.contentType?.includes("apply") === true ? withoutMeta("uid")(request) : request),
  },
  {
    name: "an object is stored as it is",
    ofStored: (entry) => entry && { ...entry, encoding: "example.com/v1alpha1" },
  },
  {
    name: "nothing is encrypted",
    ofStored: (entry) => entry && { ...entry, encoding: entry.encoding.replace(/^k8s:enc.*/, "") },
  },
  {
    name: "the metrics do not show the encryption configuration",
    ofAnswer: (answer, { path }) =>
      path === "/metrics" ? { ...answer, body: String(answer.body).replaceAll(CONFIG_INFO, "") } : answer,
  },
  { name: "every write is one", ofAnswer: everyWriteIsOne() },
  { name: "a 404 names no object", ofAnswer: ofStatus(404, ({ details: _details, ...body }) => body) },
  { name: "a 410 has no token to go on with", ofAnswer: ofStatus(410, (body) => ({ ...body, metadata: {} })) },
  {
    name: "what a webhook denies is always a 403",
    ofAnswer: (answer) =>
      String(answer.body?.message).startsWith("admission webhook") ? { ...answer, status: 403 } : answer,
  },
  {
    name: "a denial does not name the policy",
    ofAnswer: ofStatus(403, (body) => ({ ...body, message: String(body.message).replace(/with binding '.*?' /, "") })),
  },
  { name: "a label is a change of the generation", ofAnswer: ofMeta((metadata) => ({ ...metadata, generation: 1 })) },
  { name: "managedFields are not kept", ofAnswer: ofMeta(({ managedFields: _fields, ...metadata }) => metadata) },
  {
    name: "storedVersions do not grow",
    ofAnswer: ofBody(({ status, ...body }) => ({
      ...body,
      ...(status === undefined ? {} : { status: { ...status, storedVersions: ["v1alpha1"] } }),
    })),
  },
  {
    name: "a list is of a state before the newest object",
    ofAnswer: ofList((metadata) => ({ ...metadata, resourceVersion: String(Number(metadata.resourceVersion) - 2) })),
  },
  {
    name: "a page does not say how many follow",
    ofAnswer: ofList(({ remainingItemCount: _count, ...metadata }) => metadata),
  },
  {
    name: "a watch does not tell of deletions",
    ofEvent: (told) => ("event" in told && told.event.type === "DELETED" ? undefined : told),
  },
  {
    name: "a watch goes on from any resourceVersion",
    ofEvent: (told) => ("event" in told && told.event.type === "ERROR" ? undefined : told),
  },
];

/** The model, with a lie. */
export class LyingWorld extends ModelWorld {
  readonly #lie: Lie;

  constructor(lie: Lie) {
    super();
    this.#lie = lie;
  }

  override async send(request: LineRequest): Promise<Answer> {
    const { ofAnswer, ofRequest } = this.#lie;
    const answer = await super.send(ofRequest?.(request) ?? request);
    return ofAnswer?.(answer, request) ?? answer;
  }

  override async watch(request: LineRequest): ReturnType<ModelWorld["watch"]> {
    const opened = await super.watch(request);
    const { ofEvent } = this.#lie;
    if (ofEvent === undefined || "status" in opened) return opened;
    const next = async (): Promise<Told> => ofEvent(await opened.next()) ?? next();
    return { next, stop: () => opened.stop() };
  }

  override async stored(key: ObjectKey): Promise<StoredEntry | undefined> {
    const entry = await super.stored(key);
    return this.#lie.ofStored === undefined ? entry : this.#lie.ofStored(entry);
  }
}

function withoutMeta(field: string): (request: LineRequest) => LineRequest {
  return (request) => {
    const { metadata, ...body } = (request.body ?? {}) as { readonly metadata?: Readonly<Record<string, unknown>> };
    if (request.method !== "PATCH" || metadata === undefined) return request;
    const { [field]: _left, ...others } = metadata;
    return { ...request, body: { ...body, metadata: others } };
  };
}

function ofBody(change: (body: Json) => Json): (answer: Answer) => Answer {
  return (answer) => {
    const isObject = typeof answer.body === "object" && answer.body !== null && answer.status < 300;
    return isObject ? { ...answer, body: change(answer.body) } : answer;
  };
}

function ofMeta(change: (metadata: Json) => Json): (answer: Answer) => Answer {
  return ofBody((body) => (body.metadata?.uid === undefined ? body : { ...body, metadata: change(body.metadata) }));
}

function ofList(change: (metadata: Json) => Json): (answer: Answer) => Answer {
  return ofBody((body) => (body.items === undefined ? body : { ...body, metadata: change(body.metadata) }));
}

function ofStatus(status: number, change: (body: Json) => Json): (answer: Answer) => Answer {
  return (answer) => {
    const isStatus = answer.status === status && answer.body?.kind === "Status";
    return isStatus ? { ...answer, body: change(answer.body) } : answer;
  };
}

/** Each answer to a write shows a resourceVersion of its own. */
function everyWriteIsOne(): (answer: Answer, request: LineRequest) => Answer {
  let writes = 0;
  const count = ofMeta((metadata) => ({
    ...metadata,
    resourceVersion: String(Number(metadata.resourceVersion) * 1_000 + ++writes),
  }));
  return (answer, { method }) => (method === "PATCH" ? count(answer) : answer);
}
