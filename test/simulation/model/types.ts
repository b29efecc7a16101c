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
  /** Awaited where an API server has to see more of the CRDs: until it has, or for the 3 s that it waits at most. */
  untilSeen(isSeen: () => boolean): Promise<void>;
  /** Calls a webhook, admission or conversion, at this URL. @param caBundle that of an admission webhook, base64 of PEM */
  callWebhook(url: string, body: string, timeoutMs: number, caBundle?: string): Promise<WebhookAnswer>;
}

/** The clock of one API server. */
export interface ServerClock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
}
