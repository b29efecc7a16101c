import type { ApiRequest } from "../../../src/kube/api-request.ts";

/** A request of the script. */
export interface LineRequest extends Omit<ApiRequest, "signal" | "timeoutMs"> {
  /** @default "admin", who may do everything */
  readonly user?: string;
  /** Which API server is asked. @default 0 */
  readonly server?: number;
  /** That the API server sets up the storage of a custom resource is the answer, and not waited out. @default false */
  readonly mayInitialize?: boolean;
}

/** An answer, whatever its status. */
export interface Answer {
  readonly status: number;
  /** By names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** Parsed where it is JSON. */
  readonly body: Json;
}

/** A value of JSON: a script reads whatever an answer has, and a wrong path shows in the comparison. */
// oxlint-disable-next-line typescript/no-explicit-any
export type Json = any;

/** One event of a watch, or that it ended. */
export type Told = { readonly event: Json } | { readonly ended: true };

/** A watch that was opened. */
export interface OpenWatch {
  /** What comes next; rejects where nothing comes in time. */
  next(): Promise<Told>;
  stop(): void;
}

/** What etcd holds under one key. */
export interface StoredEntry {
  /** The revision of its last write. */
  readonly revision: number;
  /** The version that it is encoded in, or what encrypted it; for what is stored as JSON alone, else empty. */
  readonly encoding: string;
}

/** Which object. */
export interface ObjectKey {
  readonly group: string;
  readonly resource: string;
  readonly namespace: string | undefined;
  readonly name: string;
}

/** What a webhook of the script does with a call. */
export type WebhookDeed =
  /** It answers with this body and status 200, or with the one given. */
  | { readonly answer: unknown; readonly status?: number }
  /** It takes the call and never answers. */
  | "hang"
  /** It breaks the connection off. */
  | "reset";

/** Decides about one call. The body is what the API server sent. */
export type WebhookBehavior = (review: Json) => WebhookDeed | Promise<WebhookDeed>;

/** How a webhook configuration names a webhook. */
export interface WebhookClient {
  readonly url: string;
  readonly caBundle: string;
}

/** What a user may do with a resource. */
export interface Grant {
  readonly group: string;
  readonly resource: string;
  readonly verbs: readonly string[];
}

/** What an API server may be restarted as: an older release, or with APIs that are off by default. */
export type ServerVariant = "1.33" | "with StorageVersions and the in-tree migrator";

/** Where the script runs: on real API servers, or on the model of them. */
export interface World {
  readonly name: "real" | "model";
  send(request: LineRequest): Promise<Answer>;
  /** Opens a watch, or says how it was refused. */
  watch(request: LineRequest): Promise<OpenWatch | Answer>;
  stored(key: ObjectKey): Promise<StoredEntry | undefined>;
  /** Forgets in etcd everything before now. */
  compact(): Promise<void>;
  /** Ends an API server at once and starts it again, as another one where that is given. */
  restart(server: number, as?: ServerVariant): Promise<void>;
  /** Lets what goes on by itself go on for a moment. */
  pause(ms: number): Promise<void>;
  /** A webhook that API servers can call at the URL. */
  webhook(name: string, behavior: WebhookBehavior): Promise<WebhookClient>;
  /** A user may do this from now on, and nothing beside it but what every user may. */
  grant(user: string, grants: readonly Grant[]): Promise<void>;
}
