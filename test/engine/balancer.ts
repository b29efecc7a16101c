import { type AddressInfo, connect, createServer } from "node:net";

/** A balancer of TCP connections in front of API servers: each new connection leads to the next one. */
export async function balancer(urls: readonly string[]): Promise<{ address: string; close: () => void }> {
  let next = 0;
  const server = createServer((socket) => {
    const { hostname, port } = new URL(urls[next++ % urls.length] ?? "");
    const upstream = connect({ host: hostname, port: Number(port) });
    for (const [one, other] of [
      [socket, upstream],
      [upstream, socket],
    ] as const) {
      one.pipe(other);
      one.on("error", () => other.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { address: `https://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}
