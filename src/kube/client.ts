import type { Clock } from "../clock.ts";
import { ApiError, isAbsent, type Status } from "./errors.ts";
import { type Connection, type HttpAnswer, type HttpRequest, type Send } from "./http.ts";
import { APPLY_PATCH, type KubeList, MERGE_PATCH, METADATA_LIST } from "./objects.ts";

/** What a client is made of. */
export interface ClientParts {
  /** The base URL that requests go to. */
  readonly address: string;
  readonly send: Send;
  readonly clock: Clock;
  /** From 0 to 1, as `Math.random`. */
  readonly random: () => number;
}

export interface CallOptions {
  readonly signal: AbortSignal;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** @default application/json */
  readonly accept?: string;
  /** Milliseconds for the whole answer. @default 70,000: an API server ends a request after 60 s */
  readonly timeoutMs?: number;
}

export interface WriteOptions extends CallOptions {
  readonly fieldManager?: string;
  /** Admission and validation speak, nothing is stored. @default false */
  readonly dryRun?: boolean;
}

/** An answer that is not an error. */
export interface Answer<T> {
  readonly body: T;
  /** The clock of who answered (`Date` header, cut to the second), in milliseconds since the Unix epoch. */
  readonly date: number | undefined;
  /** Characters of the body. */
  readonly size: number;
}

/** A 64 MiB answer is larger than any page that is asked for. */
const MAX_BYTES = 64 * 2 ** 20;
const TIMEOUT_MS = 70_000;

/** One address of the Kubernetes API. It never repeats a request: see `retry`. */
export class Client {
  readonly address: string;
  readonly clock: Clock;
  readonly random: () => number;
  readonly send: Send;
  readonly #connection: Connection | undefined;

  constructor({ address, clock, random, send }: ClientParts, connection?: Connection) {
    this.address = address.replace(/\/+$/, "");
    this.clock = clock;
    this.random = random;
    this.send = send;
    this.#connection = connection;
  }

  /** The same credentials at an address, over one connection of its own. Whoever asks for it ends it. */
  over(connection: Connection | undefined, address = this.address): Client {
    return new Client({ address, send: this.send, clock: this.clock, random: this.random }, connection);
  }

  /**
   * Reads what a path answers.
   * @throws {ApiError} for an answer of 300 or above, and where no usable one came.
   */
  async get<T>(path: string, options: CallOptions): Promise<T> {
    return (await this.request<T>("GET", path, options)).body;
  }

  /** The object at a path; `undefined` where the API server says that exactly this one does not exist. */
  async find<T>(path: string, options: CallOptions): Promise<T | undefined> {
    try {
      return await this.get<T>(path, options);
    } catch (error) {
      if (isAbsent(error, decodeURIComponent(path.slice(path.lastIndexOf("/") + 1)))) return undefined;
      throw error;
    }
  }

  /**
   * Lists what a path has: consistent and current where the query has no resourceVersion.
   * @throws {ApiError} also where the answer is no list
   */
  async list<T>(path: string, options: CallOptions): Promise<KubeList<T>> {
    return (await this.listWithSize<T>(path, options)).body;
  }

  async listWithSize<T>(path: string, options: CallOptions): Promise<Answer<KubeList<T>>> {
    const answer = await this.request<Partial<KubeList<T>> & { kind?: string }>("GET", path, options);
    const { items, kind, metadata } = answer.body;
    // An empty list may come with null for its items, but not without them.
    if (kind?.endsWith("List") !== true || metadata === undefined || items === undefined) {
      throw new ApiError(`GET ${path}`, 0, "the answer is no list", { code: "ApiRequestFailed" });
    }
    return { ...answer, body: { metadata, items: items ?? [] } };
  }

  /**
   * The metadata of the one object of this name, by a consistent list: it proves that an object is absent, which a 404
   * does not. The right to list is enough for it.
   * @param path of the collection, in the namespace of the object
   */
  async findListed<T>(path: string, name: string, { signal }: CallOptions): Promise<T | undefined> {
    const query = { fieldSelector: `metadata.name=${name}` };
    const { items } = await this.list<T & { metadata: { name: string } }>(path, {
      query,
      accept: METADATA_LIST,
      signal,
    });
    // An aggregated API server may ignore the selector.
    return items.find(({ metadata }) => metadata.name === name);
  }

  async create<T>(path: string, body: unknown, options: WriteOptions): Promise<T> {
    return (await this.request<T>("POST", path, options, { body })).body;
  }

  /** @param contentType which kind of patch. @default a merge patch */
  async patch<T>(path: string, body: unknown, options: WriteOptions, contentType = MERGE_PATCH): Promise<T> {
    return (await this.request<T>("PATCH", path, options, { body, contentType })).body;
  }

  /** Server-side apply: creates the object where there is none, and takes its fields over from others. */
  async apply<T>(path: string, body: unknown, options: WriteOptions & { readonly fieldManager: string }): Promise<T> {
    const query = { ...options.query, force: true };
    return this.patch<T>(path, body, { ...options, query }, APPLY_PATCH);
  }

  /** Deletes the object at a path. Where there is none, nothing is to be done. */
  async delete(
    path: string,
    { preconditions, ...options }: WriteOptions & { readonly preconditions?: object },
  ): Promise<void> {
    const body = preconditions && { apiVersion: "v1", kind: "DeleteOptions", preconditions };
    try {
      await this.request("DELETE", path, options, { body });
    } catch (error) {
      if (!isAbsent(error, decodeURIComponent(path.slice(path.lastIndexOf("/") + 1)))) throw error;
    }
  }

  /**
   * Sends one request and parses its JSON answer.
   * @throws {ApiError} for an answer of 300 or above, and where no usable one came.
   */
  async request<T>(
    method: HttpRequest["method"],
    path: string,
    options: WriteOptions,
    { body, contentType }: { readonly body?: unknown; readonly contentType?: string } = {},
  ): Promise<Answer<T>> {
    const answer = await this.answer(method, path, options, { body, contentType, isStream: false });
    const parsed = parseJson(answer.text);
    if (typeof parsed !== "object" || parsed === null) {
      // No API server answers so. The text is not quoted: it may be anything.
      throw new ApiError(`${method} ${path}`, 0, "the answer is no JSON object", { code: "ApiRequestFailed" });
    }
    return { body: parsed as T, date: answer.date, size: answer.text.length };
  }

  /**
   * The lines of an answer as they arrive, as those of a watch or of metrics.
   * @throws as {@link request}
   */
  async lines(path: string, options: CallOptions & { readonly maxLineBytes?: number }): Promise<AsyncIterable<string>> {
    const { lines } = await this.answer("GET", path, options, { isStream: true, maxBytes: options.maxLineBytes });
    if (lines === undefined) throw new ApiError(`GET ${path}`, 0, "the answer is no stream");
    return lines;
  }

  /**
   * Sends one request.
   * @returns the answer as it came
   * @throws {ApiError} for an answer of 300 or above, and where none came; the signal's reason
   */
  async answer(
    method: HttpRequest["method"],
    path: string,
    { accept = "application/json", dryRun = false, fieldManager, query, signal, timeoutMs = TIMEOUT_MS }: WriteOptions,
    {
      body,
      contentType = "application/json",
      isStream,
      maxBytes = MAX_BYTES,
    }: {
      readonly body?: unknown;
      readonly contentType?: string | undefined;
      readonly isStream: boolean;
      readonly maxBytes?: number | undefined;
    },
  ): Promise<HttpAnswer & Pick<Answer<unknown>, "date">> {
    signal.throwIfAborted();
    const answer = await this.send({
      method,
      address: this.address,
      path,
      query: textsOf({ fieldManager, dryRun: dryRun ? "All" : undefined, ...query }),
      headers: { accept, ...(body === undefined ? {} : { "content-type": contentType }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      connection: this.#connection,
      isStream,
      maxBytes,
      timeoutMs,
      signal,
    });
    if (answer.status >= 300) throw errorIn(`${method} ${path}`, answer);
    return { ...answer, date: dateOf(answer) };
  }
}

/** The error that an answer is. */
export function errorIn(request: string, answer: HttpAnswer): ApiError {
  const { location, "retry-after": retryAfter = "" } = answer.headers;
  const parsed = parseJson(answer.text) as Status | null | undefined;
  const status = parsed?.kind === "Status" ? parsed : undefined;
  const isRedirect = answer.status < 400 && location !== undefined;
  const said = isRedirect ? `it redirects to ${withoutUser(location)}` : (status?.message ?? answer.text.slice(0, 500));
  return new ApiError(request, answer.status, said, {
    answer: status,
    retryAfter: secondsIn(retryAfter, dateOf(answer)),
  });
}

function textsOf(query: Readonly<Record<string, unknown>>): Record<string, string> {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function dateOf({ headers }: HttpAnswer): number | undefined {
  const date = Date.parse(headers["date"] ?? "");
  return Number.isNaN(date) ? undefined : date;
}

/** Seconds, or a date by the clock of who answered (RFC 9110, section 10.2.3). */
function secondsIn(text: string, now: number | undefined): number | undefined {
  if (/^\d+$/.test(text)) return Number(text);
  const date = Date.parse(text);
  return Number.isNaN(date) || now === undefined ? undefined : Math.max(0, (date - now) / 1_000);
}

/** A URL without a user name and password in it. */
export function withoutUser(url: string): string {
  return url.replace(/^([a-z0-9+.-]*:\/\/)?[^/]*@/i, "$1…@");
}
