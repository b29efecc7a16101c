import type { ModelAnswer, ModelIo, ModelRequest } from "../model/answers.ts";
import { SimApiServer } from "../model/api-server.ts";
import { SimEtcd } from "../model/etcd.ts";
import { KEYS } from "./real-world.ts";
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
  type Told,
  type WebhookBehavior,
  type WebhookClient,
  type World,
} from "./world.ts";

const WEBHOOKS = "https://127.0.0.1:1";
/** Turns of the event loop in which nothing comes before the clock goes on. */
const IDLE_TURNS = 5;
/** No watch is open for longer. */
const LONGEST_WATCH_S = 600;

/** The model of etcd and of two API servers, with a clock that goes on while nothing else happens. */
export class ModelWorld implements World {
  readonly name = "model";
  readonly #etcd = new SimEtcd();
  readonly #servers: readonly SimApiServer[];
  readonly #webhooks = new Map<string, WebhookBehavior>();
  #now = Date.UTC(2026, 0, 2);

  constructor() {
    for (const name of ["default", "kube-system"]) {
      const object = { apiVersion: "v1", kind: "Namespace", metadata: { name }, status: { phase: "Active" } };
      this.#etcd.put(`/registry/namespaces/${name}`, { object }, 0);
    }
    this.#servers = KEYS.map((keys, index) => {
      const [writes, reads] = [numberOf(keys[0]), new Set(keys.map(numberOf))];
      const options = { etcd: this.#etcd, name: `apiserver-${index}`, clock: { now: () => this.#now }, io: this.#io() };
      return new SimApiServer({ ...options, encryption: { writes, reads, resources: new Set(["secrets"]) } });
    });
    for (const server of this.#servers) server.renewLease();
  }

  async send(request: LineRequest): Promise<Answer> {
    const { body, headers, status } = await this.#handle(request);
    if (typeof body !== "string") throw new Error("The answer to a request that is no watch is one");
    return answerOf({ status, headers, body });
  }

  async watch(request: LineRequest): Promise<OpenWatch | Answer> {
    const { body, headers, status } = await this.#handle({ ...request, query: { ...request.query, watch: true } });
    if (typeof body === "string") return answerOf({ status, headers, body });
    const ends: (() => void)[] = [];
    const queue = new EventQueue(() => ends.forEach((end) => end()));
    const end = body({
      event: (line) => queue.push({ event: JSON.parse(line) as unknown }),
      end: () => queue.push({ ended: true }),
    });
    ends.push(end);
    return { next: () => this.#next(queue), stop: () => queue.stop() };
  }

  async stored(key: ObjectKey): Promise<StoredEntry | undefined> {
    const entry = this.#etcd.get(etcdKeyOf(key));
    if (entry === undefined) return undefined;
    const isEncrypted = entry.encryptionKey > 0;
    return {
      revision: entry.modRevision,
      encoding: isEncrypted ? `k8s:enc:aescbc:v1:key${entry.encryptionKey}` : encodingOf(key, entry.object.apiVersion),
    };
  }

  async compact(): Promise<void> {
    this.#etcd.compact(this.#etcd.revision);
  }

  async pause(ms: number): Promise<void> {
    await turn();
    this.#now += ms;
    for (const server of this.#servers) server.tick();
  }

  async webhook(name: string, behavior: WebhookBehavior): Promise<WebhookClient> {
    this.#webhooks.set(`${WEBHOOKS}/${name}`, behavior);
    return { url: `${WEBHOOKS}/${name}`, caBundle: "" };
  }

  async #handle({ accept, body, contentType, method, path, query = {}, server = 0 }: LineRequest) {
    const search = new URLSearchParams();
    for (const [key, value] of Object.entries(query)) if (value !== undefined) search.set(key, String(value));
    const request: ModelRequest = {
      method,
      path,
      query: search,
      headers: {
        accept: accept ?? "application/json",
        "user-agent": "ksvm",
        ...(body === undefined ? {} : { "content-type": contentType ?? "application/json" }),
      },
      body: body === undefined ? "" : JSON.stringify(body),
      user: "admin",
    };
    return (await this.#servers[server]?.handle(request)) as ModelAnswer;
  }

  /** What a watch tells next; the clock goes on while it tells nothing. */
  async #next(queue: EventQueue): Promise<Told> {
    for (let seconds = 0; seconds < LONGEST_WATCH_S; seconds++) {
      for (let turns = 0; turns < IDLE_TURNS && queue.isEmpty; turns++) await turn();
      if (!queue.isEmpty) return queue.next();
      await this.pause(1_000);
    }
    throw new Error("The watch tells nothing and does not end");
  }

  #io(): ModelIo {
    return {
      hold: async () => {
        await Promise.resolve();
      },
      callWebhook: async (url, body, timeoutMs) => {
        const behavior = this.#webhooks.get(url.replace(/\?.*$/, ""));
        const deed = behavior === undefined ? "reset" : await behavior(JSON.parse(body) as never);
        if (deed === "reset") return { error: "EOF" };
        if (deed === "hang") {
          await this.pause(timeoutMs);
          return { error: "context deadline exceeded" };
        }
        const { answer, status = 200 } = deed;
        return { status, body: typeof answer === "string" ? answer : JSON.stringify(answer) };
      },
    };
  }
}

/** `key2` is key 2 of the model. */
function numberOf(key: string): number {
  return Number(key.slice("key".length));
}

async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}
