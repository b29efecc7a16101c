import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

import { stringify } from "yaml";

import type { Status } from "../../src/api/meta.ts";
import { systemClock } from "../../src/clock.ts";
import { Client } from "../../src/kube/client.ts";
import { senderFor } from "../../src/kube/undici-send.ts";

/** A request as the server got it. */
export interface SeenRequest {
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** The parsed JSON body; `undefined` where there was none. */
  readonly body: unknown;
}

/** Answers one request. */
export type Handler = (request: SeenRequest, response: ServerResponse) => unknown;

/** A test, as far as this file needs it. */
interface Test {
  teardown(end: () => unknown): unknown;
}

/** A stand-in for an API server, for answers that a real one cannot be made to give on demand. */
export interface LocalServer {
  readonly url: string;
  /** Every request so far. */
  readonly seen: SeenRequest[];
  readonly client: Client;
}

/** Starts a server that answers with `handler` and ends with the test. */
export async function startServer(t: Test, handler: Handler): Promise<LocalServer> {
  const seen: SeenRequest[] = [];
  const server = createServer((incoming, response) => {
    void parse(incoming).then((request) => {
      seen.push(request);
      return handler(request, response);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const noCredentials = { headers: {}, ca: undefined, cert: undefined, key: undefined };
  const access = {
    server: url,
    isInsecure: true,
    serverName: undefined,
    proxyUrl: undefined,
    variables: {},
    credentials: async () => noCredentials,
    refuse: () => undefined,
  };
  const sender = senderFor(access, systemClock);
  t.teardown(sender.close);
  const client = new Client({ address: url, send: sender.send, clock: systemClock, random: Math.random });
  return { url, seen, client };
}

async function parse(incoming: IncomingMessage): Promise<SeenRequest> {
  const { method = "", url = "", headers } = incoming;
  const { pathname, searchParams } = new URL(url, "http://server");
  const body = await text(incoming);
  return {
    method,
    path: pathname,
    query: searchParams,
    headers,
    body: body === "" ? undefined : (JSON.parse(body) as unknown),
  };
}

/** The text of a kubeconfig for a server. client-node takes http only where certificates are not checked anyway. */
export function kubeconfigFor(server: string, user: Readonly<Record<string, unknown>> = {}): string {
  return stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "local", cluster: { server, "insecure-skip-tls-verify": true } }],
    users: [{ name: "jane", user }],
    contexts: [{ name: "local", context: { cluster: "local", user: "jane" } }],
    "current-context": "local",
  });
}

/** Answers with JSON. */
export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

/** The list of groups at `/apis`, of versions such as `apps/v1`; the first version of a group is its preferred one. */
export function groupList(...groupVersions: readonly string[]): object {
  const byGroup = Map.groupBy(groupVersions, (groupVersion) => groupVersion.split("/")[0] ?? "");
  const groups = [...byGroup].map(([name, all]) => {
    const versions = all.map((groupVersion) => ({ groupVersion, version: groupVersion.split("/")[1] ?? "" }));
    return { name, versions, preferredVersion: versions[0] };
  });
  return { kind: "APIGroupList", apiVersion: "v1", groups };
}

/** The list of resources of a version such as `apps/v1` or `v1`. */
export function resourceList(groupVersion: string, ...names: readonly string[]): object {
  const resources = names.map((name) => ({ name, kind: name, namespaced: true, verbs: ["list", "patch"] }));
  return { kind: "APIResourceList", apiVersion: "v1", groupVersion, resources };
}

/** Answers with a `metav1.Status`, as an API server does for an error. */
export function sendStatus(response: ServerResponse, code: number, fields: Partial<Status> = {}): void {
  sendJson(response, code, { apiVersion: "v1", kind: "Status", status: "Failure", code, ...fields });
}
