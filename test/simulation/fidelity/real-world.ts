import https from "node:https";
import { issueSelfSigned } from "../../certs/self-signed.ts";
import type { ApiserverOptions } from "../../control-plane/apiserver.ts";
import { type ControlPlane, startControlPlane } from "../../control-plane/control-plane.ts";
import { encryptionConfig } from "../../control-plane/encryption.ts";
import { typeMetaOf } from "../../control-plane/stored-value.ts";
import {
  type Answer,
  answerOf,
  encodingOf,
  etcdKeyOf,
  EventQueue,
  type LineRequest,
  type ObjectKey,
  type OpenWatch,
  type StoredEntry,
  type WebhookBehavior,
  type WebhookClient,
  type World,
} from "./world.ts";
import type { ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { Agent, request as undiciRequest } from "undici";
import { parse } from "yaml";

/** For a moment after a CRD was changed an API server answers so for its objects; such a request has done nothing. */
const IS_BEING_REPLACED = /\(re\)initializing|apiserver is shutting down/;
const REPLACED_MS = 20_000;

/** Real API servers and etcd. */
class RealWorld implements World {
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
    const { body, ...answer } = await this.#settled(request);
    return answerOf({ ...answer, body: typeof body === "string" ? body : await textOf(body) });
  }

  async watch(request: LineRequest): Promise<OpenWatch | Answer> {
    const { body, ...answer } = await this.#settled({ ...request, query: { ...request.query, watch: true } });
    if (typeof body === "string") return answerOf({ ...answer, body });
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

  /** Ends what this began; the control plane is for its owner to end. */
  async close(): Promise<void> {
    const served = await this.#server;
    served?.server.closeAllConnections();
    served?.server.close();
    await this.#agent.destroy();
  }

  /** An answer that is no refusal for a moment; of a refusal the body is read. */
  async #settled(request: LineRequest) {
    const deadline = performance.now() + REPLACED_MS;
    for (;;) {
      const { body, headers, status } = await this.#open(request);
      if (status < 300) return { status, headers, body };
      const text = await textOf(body);
      const isReplaced = (status === 429 || status === 503) && IS_BEING_REPLACED.test(text);
      if (!isReplaced || request.mayInitialize === true || performance.now() > deadline)
        return { status, headers, body: text };
      await delay(50);
    }
  }

  async #open(request: LineRequest) {
    const { body, path, query = {}, server = 0 } = request;
    const search = new URLSearchParams();
    for (const [key, value] of Object.entries(query)) {
      if (value !== undefined) search.set(key, String(value));
    }
    const url = `${this.#controlPlane.apiservers[server]?.url}${path}${search.size === 0 ? "" : `?${search.toString()}`}`;
    const answer = await undiciRequest(url, {
      method: request.method,
      dispatcher: this.#agent,
      headers: {
        authorization: `Bearer ${this.#tokenOf()}`,
        accept: request.accept ?? "application/json",
        "user-agent": "ksvm",
        ...(body === undefined ? {} : { "content-type": request.contentType ?? "application/json" }),
      },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const headers = Object.fromEntries(Object.entries(answer.headers).map(([key, value]) => [key, String(value)]));
    return { status: answer.statusCode, headers, body: answer.body as Readable };
  }

  #tokenOf(): string {
    const config = parse(this.#controlPlane.kubeconfigTextFor("admin")) as {
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
    const server = https.createServer(
      { cert: pair.certPem, key: pair.keyPem, keepAliveTimeout: 120_000 },
      (request, response) => {
        const chunks: Buffer[] = [];
        request.on("data", (chunk: Buffer) => chunks.push(chunk));
        request.on("end", () => {
          void this.#answerCall(request.url ?? "", JSON.parse(Buffer.concat(chunks).toString()), response);
        });
      },
    );
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

/** The keys of both API servers of the script, the one that each writes with first. */
export const KEYS = [
  ["key1", "key2"],
  ["key2", "key1"],
] as const;

/** What differs between the real API servers of the script: keys, and a host name and so an identity Lease each. */
const OVERRIDES: readonly ApiserverOptions[] = KEYS.map((keys, index) => ({
  encryptionConfig: encryptionConfig(keys, ["secrets"]),
  hostname: `apiserver-${index}`,
}));

/** Starts two API servers over one etcd. */
export async function startReal(): Promise<{ readonly world: RealWorld; readonly close: () => Promise<void> }> {
  const controlPlane = await startControlPlane({
    apiservers: 2,
    // Compactions are for the script to make.
    compactionInterval: "0",
    overrides: OVERRIDES,
  });
  const world = new RealWorld(controlPlane);
  const close = async (): Promise<void> => {
    await world.close();
    await controlPlane.stop();
  };
  return { world, close };
}
