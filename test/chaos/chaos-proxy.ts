import { writeFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import { issueSelfSigned } from "../certs/self-signed.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { type Disturbance, UNDISTURBED, wordsFor } from "./disturbance.ts";

/** How a {@link ChaosProxy} behaves. */
export interface ProxyOptions {
  /** The index of the API server that it leads to. @default 0 */
  readonly apiserver?: number;
  /** @default nothing is disturbed */
  readonly disturb?: (request: { readonly method: string; readonly path: string }) => Disturbance;
  /** Told of every request that goes on to the API server, and how that answered. */
  readonly onAnswer?: (request: { readonly method: string; readonly path: string }, status: number) => void;
}

const PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>the chaos proxy says no</body></html>";

/** An HTTPS proxy before one API server, which does harm to what passes. It ends with the test. */
export class ChaosProxy {
  /** The path of a kubeconfig whose server is the proxy. */
  readonly kubeconfig: string;
  readonly url: string;
  /** The CA of its certificate, as PEM text. */
  readonly ca: string;
  /** How many requests met each kind of disturbance. */
  readonly disturbed: Record<string, number> = {};
  readonly #options: ProxyOptions;
  readonly #target: URL;
  readonly #agent: https.Agent;

  private constructor(
    own: Pick<ChaosProxy, "kubeconfig" | "url" | "ca">,
    target: URL,
    agent: https.Agent,
    options: ProxyOptions,
  ) {
    this.kubeconfig = own.kubeconfig;
    this.url = own.url;
    this.ca = own.ca;
    this.#target = target;
    this.#agent = agent;
    this.#options = options;
  }

  static async start(t: Test, controlPlane: ControlPlane, options: ProxyOptions): Promise<ChaosProxy> {
    const names = { dnsNames: ["localhost"], ipAddresses: ["127.0.0.1"] };
    const pair = await issueSelfSigned({ ...names, now: new Date(), lifetimeMs: 86_400_000 });
    const server = https.createServer({ cert: pair.certPem, key: pair.keyPem });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const kubeconfig = join(t.testdir(), "proxy.kubeconfig");
    // Who finds the addresses of API servers asks them past the proxy.
    writeFileSync(kubeconfig, kubeconfigFor(controlPlane, url, `${pair.caPem}\n${controlPlane.ca}`), { mode: 0o600 });
    const target = new URL(controlPlane.apiservers[options.apiserver ?? 0]?.url ?? "");
    const agent = new https.Agent({ keepAlive: true, ca: controlPlane.ca });
    const proxy = new ChaosProxy({ kubeconfig, url, ca: pair.caPem }, target, agent, options);
    server.on("request", (request, response) => void proxy.#handle(request, response));
    t.teardown(() => {
      agent.destroy();
      server.closeAllConnections();
      server.close();
    });
    return proxy;
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = "GET", url: path = "/" } = request;
    const disturbance = this.#options.disturb?.({ method, path }) ?? UNDISTURBED;
    const words = wordsFor(disturbance);
    this.disturbed[words] = (this.disturbed[words] ?? 0) + 1;
    switch (disturbance.kind) {
      case "reset":
        request.socket.destroy();
        return;
      case "answer":
        request.resume();
        answerInstead(response, disturbance);
        return;
      case "delay":
        await delay(disturbance.ms);
        break;
      default:
        break;
    }
    this.#forward(request, response, disturbance);
  }

  #forward(request: IncomingMessage, response: ServerResponse, { kind }: Disturbance): void {
    const { hostname, port } = this.#target;
    const { method = "GET", url: path = "/", headers } = request;
    const upstream = https.request({ agent: this.#agent, hostname, port, method, path, headers }, (answer) => {
      this.#options.onAnswer?.({ method, path }, answer.statusCode ?? 0);
      answer.on("error", () => response.destroy());
      if (kind === "lost-answer") {
        // Only when the whole answer is here the request has surely taken effect.
        answer.resume().on("end", () => request.socket.destroy());
        return;
      }
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      // As the API server does: a watch begins to answer long before its first event.
      response.flushHeaders();
      if (kind === "truncate") {
        truncate(answer, response);
      } else {
        answer.pipe(response);
      }
    });
    upstream.on("error", () => response.destroy());
    response.on("close", () => upstream.destroy());
    request.on("error", () => upstream.destroy());
    request.pipe(upstream);
  }
}

function truncate(answer: IncomingMessage, response: ServerResponse): void {
  const breakOff = (): void => void response.socket?.destroy();
  answer.once("data", (chunk: Buffer) => response.write(chunk.subarray(0, chunk.length / 2), breakOff));
  answer.once("end", breakOff);
}

function answerInstead(
  response: ServerResponse,
  { isHtml = false, retryAfter, status }: Disturbance & { kind: "answer" },
): void {
  if (retryAfter !== undefined) response.setHeader("retry-after", retryAfter);
  response.statusCode = status;
  // As a load balancer answers: nothing that an API server would say.
  response.setHeader("content-type", isHtml ? "text/html" : "text/plain");
  response.end(isHtml ? PAGE : "the chaos proxy says no");
}

function kubeconfigFor(controlPlane: ControlPlane, server: string, ca: string): string {
  const config = JSON.parse(controlPlane.kubeconfigTextFor()) as { clusters: { cluster: Record<string, string> }[] };
  for (const { cluster } of config.clusters) {
    cluster["server"] = server;
    cluster["certificate-authority-data"] = Buffer.from(ca).toString("base64");
  }
  return JSON.stringify(config);
}
