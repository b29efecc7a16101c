import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import type { Test } from "tap";

/** What the connections of an API server to etcd go through. */
export interface EtcdRelay {
  /** A value of --etcd-servers. */
  readonly url: string;
  /** Keeps back what etcd sends from now on, so that the API server learns of no change. */
  hold(): void;
  /** Passes on what was kept back, and all that follows. */
  letGo(): void;
}

/** Starts a relay in front of etcd. It ends with the test. */
export async function relayToEtcd(t: Test, etcdUrl: string): Promise<EtcdRelay> {
  const clientOf = new Map<Socket, Socket>();
  let isHeld = false;
  const server = createServer({ noDelay: true }, (client) => {
    const upstream = connect({ port: Number(new URL(etcdUrl).port), host: "127.0.0.1", noDelay: true });
    clientOf.set(upstream, client);
    client.pipe(upstream);
    if (!isHeld) upstream.pipe(client);
    client.on("error", () => upstream.destroy());
    client.on("close", () => upstream.destroy());
    upstream.on("error", () => client.destroy());
    upstream.on("close", () => {
      clientOf.delete(upstream);
      client.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.close();
    for (const upstream of clientOf.keys()) {
      upstream.destroy();
    }
  });
  const hold = (): void => {
    isHeld = true;
    for (const upstream of clientOf.keys()) {
      upstream.unpipe();
    }
  };
  const letGo = (): void => {
    isHeld = false;
    for (const [upstream, client] of clientOf) {
      upstream.pipe(client);
    }
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, hold, letGo };
}
