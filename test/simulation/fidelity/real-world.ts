import type { ServerResponse } from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { Readable } from "node:stream";
import { Agent, request as undiciRequest } from "undici";
import { parse } from "yaml";
import { issueSelfSigned } from "../../../src/certs/self-signed.ts";
import { APPLY_PATCH } from "../../../src/kube/resources.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { typeMetaOf } from "../../control-plane/stored-value.ts";
import { EventQueue } from "./event-queue.ts";
import type {
  Answer,
  LineRequest,
  Grant,
  ObjectKey,
  ServerVariant,
  OpenWatch,
  StoredEntry,
  WebhookBehavior,
  WebhookClient,
  World,
} from "./line.ts";
import { answerOf } from "./answer.ts";
import { OVERRIDES, VARIANTS } from "./server-options.ts";
import { encodingOf, etcdKeyOf } from "./object-key.ts";

/** For a moment after a CRD was changed an API server answers so for its objects; such a request has done nothing. */
const IS_BEING_REPLACED = /\(re\)initializing|apiserver is shutting down/;
const REPLACED_MS = 20_000;

/** Real API servers and etcd. */
export class RealWorld implements World {
  readonly name = "real";
  readonly #controlPlane: ControlPlane;
  readonly #agent: Agent;
  readonly #webhooks = new Map<string, WebhookBehavior>();
  #server: Promise<{ readonly server: https.Server; readonly caBundle: string }> | undefined;

  constructor(controlPlane: ControlPlane) {
    this.#controlPlane = controlPlane;
    this.#agent = new Agent({ connect: { ca: controlPlane.ca }, connections: 64 });
  }

  async send(request: LineRequest): Promise<Answer> {
    const deadline = performance.now() + REPLACED_MS;
    for (;;) {
      const { body, headers, status } = await this.#open(request);
      const text = await textOf(body);
      const isReplaced = (status === 429 || status === 503) && IS_BEING_REPLACED.test(text);
      if (!isReplaced || request.mayInitialize === true || performance.now() > deadline)
        return answerOf({ status, headers, body: text });
      await delay(50);
    }
  }

  async watch(request: LineRequest): Promise<OpenWatch | Answer> {
    const { body, headers, status } = await this.#open({ ...request, query: { ...request.query, watch: true } });
    if (status !== 200) return answerOf({ status, headers, body: await textOf(body) });
    const queue = new EventQueue(() => body.destroy());
    void this.#readEvents(body, queue);
    return queue;
  }

  async stored(key: ObjectKey): Promise<StoredEntry | undefined> {
    const entry = await this.#controlPlane.stored.readKey(etcdKeyOf(key));
    if (entry === undefined) return undefined;
    const { apiVersion, encryptedWith } = typeMetaOf(entry.value);
    return { revision: entry.modRevision, encoding: encryptedWith ?? encodingOf(key, apiVersion) };
  }

  async compact(): Promise<void> {
    const { stored } = this.#controlPlane;
    await stored.compact(await stored.currentRevision());
  }

  async restart(server: number, as?: ServerVariant): Promise<void> {
    if (as === undefined) await this.#controlPlane.apiservers[server]?.restart();
    else await this.#controlPlane.restartApiserver(server, { ...OVERRIDES[server], ...VARIANTS[as] });
  }

  async pause(ms: number): Promise<void> {
    await delay(ms);
  }

  async webhook(name: string, behavior: WebhookBehavior): Promise<WebhookClient> {
    this.#webhooks.set(`/${name}`, behavior);
    // The promise is kept: scenarios that run side by side have one server.
    this.#server ??= this.#serveWebhooks();
    const { caBundle, server } = await this.#server;
    const { port } = server.address() as AddressInfo;
    return { url: `https://127.0.0.1:${port}/${name}`, caBundle };
  }

  async grant(user: string, grants: readonly Grant[]): Promise<void> {
    const metadata = { name: user };
    const group = "rbac.authorization.k8s.io";
    const rules = grants.map((grant) => ({
      apiGroups: [grant.group],
      resources: [grant.resource],
      verbs: grant.verbs,
    }));
    const roleRef = { apiGroup: group, kind: "ClusterRole", name: user };
    const subjects = [{ kind: "User", apiGroup: group, name: user }];
    const base = { apiVersion: `${group}/v1`, metadata };
    for (const [resource, body] of [
      ["clusterroles", { ...base, kind: "ClusterRole", rules }],
      ["clusterrolebindings", { ...base, kind: "ClusterRoleBinding", roleRef, subjects }],
    ] as const) {
      const query = { fieldManager: "script", force: true };
      const path = `/apis/${group}/v1/${resource}/${user}`;
      const { status } = await this.send({ method: "PATCH", path, query, body, contentType: APPLY_PATCH });
      if (status >= 300) throw new Error(`Cannot grant rights to ${user}: the API server answered ${status}`);
    }
  }

  /** Ends what this began; the control plane is for its owner to end. */
  async close(): Promise<void> {
    const served = await this.#server;
    served?.server.closeAllConnections();
    served?.server.close();
    await this.#agent.destroy();
  }

  async #open(request: LineRequest) {
    const { body, path, query = {}, server = 0, user = "admin" } = request;
    const search = new URLSearchParams();
    for (const [key, value] of Object.entries(query)) {
      if (value !== undefined) search.set(key, String(value));
    }
    const url = `${this.#controlPlane.apiservers[server]?.url}${path}${search.size === 0 ? "" : `?${search.toString()}`}`;
    const answer = await undiciRequest(url, {
      method: request.method,
      dispatcher: this.#agent,
      headers: {
        authorization: `Bearer ${this.#tokenOf(user)}`,
        accept: request.accept ?? "application/json",
        "user-agent": "ksvm",
        ...(body === undefined ? {} : { "content-type": request.contentType ?? "application/json" }),
      },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const headers = Object.fromEntries(Object.entries(answer.headers).map(([key, value]) => [key, String(value)]));
    return { status: answer.statusCode, headers, body: answer.body as Readable };
  }

  #tokenOf(user: string): string {
    const config = parse(this.#controlPlane.kubeconfigTextFor(user)) as {
      readonly users: readonly { readonly user: { readonly token: string } }[];
    };
    return config.users[0]?.user.token ?? "";
  }

  async #readEvents(body: Readable, queue: EventQueue): Promise<void> {
    let rest = "";
    try {
      for await (const chunk of body.setEncoding("utf8")) {
        const lines = (rest + String(chunk)).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) queue.push({ event: JSON.parse(line) as unknown });
      }
    } catch {
      // The script has enough of it, or the API server ends.
    }
    queue.push({ ended: true });
  }

  async #serveWebhooks(): Promise<{ readonly server: https.Server; readonly caBundle: string }> {
    const now = new Date();
    const pair = await issueSelfSigned({
      dnsNames: ["localhost"],
      ipAddresses: ["127.0.0.1"],
      now,
      lifetimeMs: 3_600_000,
    });
    const server = https.createServer({ cert: pair.certPem, key: pair.keyPem }, (request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        void this.#answerCall(request.url ?? "", JSON.parse(Buffer.concat(chunks).toString()), response);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return { server, caBundle: Buffer.from(pair.caPem).toString("base64") };
  }

  async #answerCall(url: string, review: unknown, response: ServerResponse): Promise<void> {
    const behavior = this.#webhooks.get(url.replace(/\?.*$/, ""));
    const deed = behavior === undefined ? "reset" : await behavior(review);
    if (deed === "hang") return;
    if (deed === "reset") {
      response.destroy();
      return;
    }
    const { answer, status = 200 } = deed;
    const isText = typeof answer === "string";
    response.writeHead(status, { "content-type": isText ? "text/plain" : "application/json" });
    response.end(isText ? answer : JSON.stringify(answer));
  }
}

async function textOf(body: Readable): Promise<string> {
  let text = "";
  for await (const chunk of body.setEncoding("utf8")) text += String(chunk);
  return text;
}
