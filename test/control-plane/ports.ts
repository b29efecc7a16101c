import { randomInt } from "node:crypto";
import { createServer } from "node:net";

// Below the ranges from which systems take ports for outgoing connections (32768 up on Linux, 49152 up elsewhere): a
// server that is down for a restart must find its port still free.
const LOWEST = 18_000;
const HIGHEST = 30_000;

/**
 * Finds `count` different TCP ports that nothing listens on at 127.0.0.1. Another process may still take one before the
 * caller does, so a caller starts again with new ports when its program says that the address is in use.
 * @throws {Error} when it finds none in a thousand tries
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  for (let tries = 0; ports.size < count; tries++) {
    if (tries === 1000) throw new Error("Cannot find a free port on 127.0.0.1");
    const port = randomInt(LOWEST, HIGHEST);
    if (await isFree(port)) ports.add(port);
  }
  return [...ports];
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
