import { connect, createServer, type AddressInfo } from "node:net";
import type { Test } from "tap";
import type { Replica } from "./replica.ts";

/** How often a replica is asked whether it is ready, in milliseconds; a kubelet does that every few seconds. */
const PROBE_MS = 500;

/** What a Service is to the replicas: connections go to one that is ready. Those that there are stay, as with a Service. */
export class WebhookService {
  readonly port: number;
  readonly #replicas = new Map<Replica, { readonly port: number; isReady: boolean }>();

  private constructor(port: number) {
    this.port = port;
  }

  /** Ends with the test. */
  static async start(t: Test): Promise<WebhookService> {
    const server = createServer((socket) => {
      const port = service.#readyPort();
      if (port === undefined) {
        socket.destroy();
        return;
      }
      const upstream = connect(port, "127.0.0.1");
      socket.pipe(upstream).pipe(socket);
      socket.on("error", () => upstream.destroy());
      upstream.on("error", () => socket.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const service = new WebhookService((server.address() as AddressInfo).port);
    const probes = setInterval(() => service.#probe(), PROBE_MS);
    t.teardown(() => {
      clearInterval(probes);
      server.close();
    });
    return service;
  }

  /** Sends it connections whenever it is ready. */
  add(replica: Replica, port: number): void {
    this.#replicas.set(replica, { port, isReady: false });
    void replica.ended.then(() => this.#replicas.delete(replica));
  }

  #readyPort(): number | undefined {
    return [...this.#replicas.values()].find(({ isReady }) => isReady)?.port;
  }

  #probe(): void {
    for (const [replica, target] of this.#replicas) {
      void replica.health("/readyz").then(({ status }) => (target.isReady = status === 200));
    }
  }
}
