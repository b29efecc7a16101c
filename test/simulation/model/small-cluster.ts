import { SimApiServer, type SimApiServerOptions } from "./api-server.ts";
import { SimEtcd } from "./etcd.ts";
import type { ModelObject } from "./model-object.ts";
import type { HoldPoint, ModelAnswer, WebhookAnswer } from "./types.ts";

/** The group of the custom resources of these tests. */
export const GROUP = "/apis/example.com";
export const CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
export const APPLY = "application/apply-patch+yaml";
export const MERGE = "application/merge-patch+json";

/** A Status, as far as these tests look at it. */
export type Status = {
  readonly message: string;
  readonly reason: string;
  readonly metadata: { readonly continue?: string };
};

/** One etcd, and API servers over it that answer at once. */
export class SmallCluster {
  readonly etcd = new SimEtcd();
  now = Date.UTC(2026, 0, 1);
  readonly servers: SimApiServer[] = [];
  held: (point: HoldPoint) => Promise<void> | undefined = () => undefined;
  webhook: (url: string, body: string) => WebhookAnswer = () => ({ error: "connection refused" });

  server(options: Partial<SimApiServerOptions> = {}): SimApiServer {
    const server = new SimApiServer({
      etcd: this.etcd,
      name: `host-${this.servers.length}`,
      clock: { now: () => this.now },
      io: {
        hold: async (point) => await this.held(point),
        untilSeen: async () => undefined,
        callWebhook: async (url, body) => this.webhook(url, body),
      },
      ...options,
    });
    this.servers.push(server);
    return server;
  }
}

/** Sends a request; `body` is that of the answer, parsed. */
export async function send(
  server: SimApiServer,
  method: string,
  url: string,
  { body, ...headers }: Record<string, unknown> & { body?: unknown } = {},
): Promise<{ status: number; body: never; answer: ModelAnswer }> {
  const [path = "", query = ""] = url.split("?");
  const answer = await server.handle({
    method,
    path,
    query: new URLSearchParams(query),
    headers: headers as Record<string, string>,
    body: body === undefined ? "" : JSON.stringify(body),
    user: (headers as Record<string, string | undefined>)["user"] ?? "admin",
  });
  const text = typeof answer.body === "string" ? answer.body : "null";
  return { status: answer.status, body: (text.startsWith("{") ? JSON.parse(text) : text) as never, answer };
}

/** A CRD of widgets. */
export function crd(storage: "v1" | "v2", versions = ["v1", "v2"]): object {
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: "widgets.example.com" },
    spec: {
      group: "example.com",
      scope: "Namespaced",
      names: { plural: "widgets", kind: "Widget" },
      versions: versions.map((name) => ({ name, served: true, storage: name === storage, schema: {} })),
    },
  };
}

/** A widget. */
export function widget(name: string, version = "v1"): object {
  return {
    apiVersion: `example.com/${version}`,
    kind: "Widget",
    metadata: { name, labels: { app: "a" } },
    spec: { size: 1 },
  };
}

/** A cluster with the CRD of widgets, and one widget. */
export async function setUp(cluster = new SmallCluster()): Promise<{ cluster: SmallCluster; server: SimApiServer }> {
  const server = cluster.server();
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "default" } };
  await send(server, "POST", "/api/v1/namespaces", { body: namespace });
  await send(server, "POST", CRDS, { body: crd("v1") });
  await send(server, "POST", `${GROUP}/v1/namespaces/default/widgets`, { body: widget("a"), "user-agent": "test" });
  return { cluster, server };
}

/** Changes the storage version of widgets. */
export async function setStorage(server: SimApiServer, storage: "v1" | "v2"): Promise<void> {
  const { spec } = crd(storage) as ModelObject;
  await send(server, "PATCH", `${CRDS}/widgets.example.com`, { body: { spec }, "content-type": MERGE });
}

/** An apply that owns no field. */
export function noOp(object: ModelObject, version = "v2"): Record<string, unknown> & { body: unknown } {
  const { name, namespace, resourceVersion, uid } = object.metadata;
  const metadata = { name, namespace, uid, resourceVersion };
  return { body: { apiVersion: `example.com/${version}`, kind: "Widget", metadata }, "content-type": APPLY };
}

/** The names in a list. */
export function names({ body }: { body: unknown }): unknown {
  return (body as { items: ModelObject[] }).items.map(({ metadata }) => metadata.name);
}

export const PATCH_QUERY = "?fieldManager=ksvm-rewrite";
