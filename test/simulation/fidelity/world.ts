import type { HttpRequest } from "../../../src/kube/http.ts";

/** A request of the script. */
export interface LineRequest extends Pick<HttpRequest, "method" | "path"> {
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** @default application/json */
  readonly contentType?: string;
  /** @default application/json */
  readonly accept?: string;
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

/** Where the script runs: on real API servers, or on the model of them. */
export interface World {
  readonly name: "real" | "model";
  send(request: LineRequest): Promise<Answer>;
  /** Opens a watch, or says how it was refused. */
  watch(request: LineRequest): Promise<OpenWatch | Answer>;
  stored(key: ObjectKey): Promise<StoredEntry | undefined>;
  /** Forgets in etcd everything before now. */
  compact(): Promise<void>;
  /** Lets what goes on by itself go on for a moment. */
  pause(ms: number): Promise<void>;
  /** A webhook that API servers can call at the URL. */
  webhook(name: string, behavior: WebhookBehavior): Promise<WebhookClient>;
}

/** An answer, with the body parsed where it is JSON. */
export function answerOf({ body, headers, status }: Answer & { readonly body: string }): Answer {
  const isJson = headers["content-type"]?.startsWith("application/json") === true;
  return { status, headers, body: isJson ? (JSON.parse(body) as unknown) : body };
}

/** Generous: it is only used up where something is wrong, or the machine is busy with others. */
const PATIENCE_MS = 120_000;

/** Events of a watch, for a script that takes them one by one. */
export class EventQueue implements OpenWatch {
  readonly #told: Told[] = [];
  readonly #onStop: () => void;
  #wake: (() => void) | undefined;

  constructor(onStop: () => void) {
    this.#onStop = onStop;
  }

  get isEmpty(): boolean {
    return this.#told.length === 0;
  }

  push(told: Told): void {
    this.#told.push(told);
    this.#wake?.();
  }

  async next(): Promise<Told> {
    const first = this.#told.shift();
    if (first !== undefined) return first;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve, reject) => {
      this.#wake = resolve;
      timer = setTimeout(() => reject(new Error(`The watch told nothing for ${PATIENCE_MS} ms`)), PATIENCE_MS);
    });
    clearTimeout(timer);
    return this.next();
  }

  stop(): void {
    this.#onStop();
  }
}

const PATH =
  /^\/(?:api|apis\/(?<group>[^/]+))\/[^/]+(?:\/namespaces\/(?<namespace>[^/]+))?\/(?<resource>[^/]+)(?:\/(?<name>[^/]+))?(?:\/[^/]+)?$/;

/** The object that a request is about; of a create, the one that its body or its answer names. `undefined` where there is none. */
export function objectKeyOf({ body, method, path }: LineRequest, answer?: Json): ObjectKey | undefined {
  const { group = "", namespace, resource, name } = PATH.exec(path)?.groups ?? {};
  const { metadata } = (answer ?? body ?? {}) as { readonly metadata?: { readonly name?: string } };
  const found = name ?? (method === "POST" ? metadata?.name : undefined);
  return resource === undefined || found === undefined ? undefined : { group, resource, namespace, name: found };
}

/** Prefixes in etcd of resources that are not below their group. */
const PREFIXED = new Set([
  "clusterrolebindings",
  "clusterroles",
  "configmaps",
  "events",
  "leases",
  "mutatingwebhookconfigurations",
  "secrets",
  "validatingadmissionpolicies",
  "validatingadmissionpolicybindings",
  "validatingwebhookconfigurations",
  "volumeattributesclasses",
]);

/** Where etcd has an object. */
export function etcdKeyOf({ group, name, namespace, resource }: ObjectKey): string {
  const prefix = PREFIXED.has(resource) ? `/registry/${resource}` : `/registry/${group}/${resource}`;
  return [prefix, ...(namespace === undefined ? [] : [namespace]), name].join("/");
}

/** In which version an object is stored. A CRD is stored in v1beta1, and no code of ksvm looks at that. */
export function encodingOf({ group }: ObjectKey, apiVersion: string): string {
  return group === "apiextensions.k8s.io" ? "" : apiVersion;
}
