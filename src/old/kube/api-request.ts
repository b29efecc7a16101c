/** One request to an API server. */
export interface ApiRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The path without a query, each segment encoded. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** @default application/json */
  readonly contentType?: string;
  /** @default application/json */
  readonly accept?: string;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds for this request as a whole. @default those of the transport */
  readonly timeoutMs?: number | undefined;
}

/** An answer with a status of 200 to 299. */
export interface ApiResponse<T> {
  readonly status: number;
  readonly body: T;
  /** The API server's clock (`Date` header), in milliseconds since the Unix epoch, cut to the second. */
  readonly serverTime: number | undefined;
}

/** Whether a request may change what is in etcd. */
export function isStored({ method, query }: ApiRequest): boolean {
  return method !== "GET" && query?.["dryRun"] === undefined;
}

/** Paths that stay as they are: what else there is, as segments of dots, goes through the rules of URLs. */
const PLAIN_PATH = /^(?:\/(?!\.|%2e)[\w.~!$&'()*+,;=:@%-]+)+$/i;

/** The path of a request with its query, as it is sent. */
export function pathOf({ path: asked, query }: ApiRequest): string {
  const path = PLAIN_PATH.test(asked) ? asked : new URL(`https://server${asked}`).pathname;
  if (query === undefined) return path;
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) {
      search.set(name, String(value));
    }
  }
  return search.size === 0 ? path : `${path}?${search.toString()}`;
}

/** The headers of a request, those with the credentials of its sender included. */
export function headersOf(
  request: ApiRequest,
  credentials: Record<string, string | string[]>,
): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = {
    ...credentials,
    accept: request.accept ?? "application/json",
    "user-agent": "ksvm",
  };
  if (request.body !== undefined) {
    headers["content-type"] = request.contentType ?? "application/json";
  }
  return headers;
}

/** A request in an error or a log: method and path. */
export function methodAndPath(request: ApiRequest): string {
  return `${request.method} ${request.path}`;
}
