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

/** The URL of a request to the API server at this base URL. */
export function urlOf(server: string, request: ApiRequest): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(request.query ?? {})) {
    if (value !== undefined) {
      query.set(name, String(value));
    }
  }
  const search = query.size === 0 ? "" : `?${query.toString()}`;
  return `${server}${request.path}${search}`;
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
