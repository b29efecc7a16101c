import { writeFileSync } from "node:fs";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { join } from "node:path";
import type { Test } from "tap";
import type { ControlPlane } from "../control-plane/control-plane.ts";

/** What a load balancer is to API servers: each new connection goes to the next of them, and stays with it. */
export interface Balancer {
  /** The path of a kubeconfig that leads to it. */
  readonly kubeconfig: string;
  readonly url: string;
  /** How many connections it passed on. */
  turns(): number;
  /**
   * Passes new connections on to these API servers alone, as after a failed health check.
   * @param others what becomes of the connections that end at others. @default "keep"
   */
  use(urls: readonly string[], others?: "keep" | "reset"): void;
  /** Those that are open, the oldest first. */
  connections(): readonly BalancedConnection[];
}

/** A client's connection through a {@link Balancer}. */
export interface BalancedConnection {
  /** Passes nothing on any more, in neither direction, and stays open, as where a dead leg is not noticed. */
  hang(): void;
  /** Ends it with RST. */
  reset(): void;
}

/** Starts a load balancer in front of API servers. It ends with the test. */
export async function balance(t: Test, controlPlane: ControlPlane, urls: readonly string[]): Promise<Balancer> {
  let [turn, targets] = [0, urls];
  const sockets = new Set<Socket>();
  const connections = new Set<BalancedConnection>();
  const upstreams = new Map<Socket, string>();
  const server = createServer({ noDelay: true }, (socket) => {
    const target = targets[turn++ % targets.length] ?? "";
    const upstream = connect({ port: Number(new URL(target).port), host: "127.0.0.1", noDelay: true });
    upstreams.set(upstream, target);
    upstream.on("close", () => upstreams.delete(upstream));
    const connection = connectionOf(socket, upstream);
    connections.add(connection);
    socket.on("close", () => connections.delete(connection));
    for (const [end, other] of [
      [socket, upstream],
      [upstream, socket],
    ] as const) {
      sockets.add(end);
      end.pipe(other);
      end.on("error", () => other.destroy());
      end.on("close", () => {
        sockets.delete(end);
        other.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.close();
    for (const socket of sockets) {
      socket.destroy();
    }
  });
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const kubeconfig = join(t.testdir(), "kubeconfig");
  writeFileSync(kubeconfig, controlPlane.kubeconfigTextFor().replace(controlPlane.apiservers[0]?.url ?? "", url));
  const use = (next: readonly string[], others: "keep" | "reset" = "keep"): void => {
    targets = next;
    for (const [upstream, target] of others === "reset" ? upstreams : []) {
      if (!next.includes(target)) {
        upstream.destroy();
      }
    }
  };
  return { kubeconfig, url, turns: () => turn, use, connections: () => [...connections] };
}

function connectionOf(socket: Socket, upstream: Socket): BalancedConnection {
  return {
    hang: () => {
      for (const end of [socket, upstream]) {
        end.unpipe();
        end.pause();
      }
    },
    reset: () => void socket.resetAndDestroy(),
  };
}
