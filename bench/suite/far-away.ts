// An API server that is far away: a proxy for TCP that holds what passes for half a round trip each way. far-away.ts HOST PORT MILLISECONDS
// prints its own port, and ends with its input.
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

const [host = "", port = "", roundTripMs = ""] = process.argv.slice(2);
const delayMs = Number(roundTripMs) / 2;

function hold(from: Socket, to: Socket): void {
  from.on("data", (chunk) => void setTimeout(() => to.writable && to.write(chunk), delayMs));
  from.on("close", () => void setTimeout(() => to.destroy(), delayMs));
  from.on("error", () => undefined);
}

const server = createServer({ noDelay: true }, (client) => {
  const upstream = connect({ host, port: Number(port), noDelay: true });
  hold(client, upstream);
  hold(upstream, client);
});
server.listen(0, "127.0.0.1", () => console.log((server.address() as AddressInfo).port));
process.stdin.on("end", () => process.exit()).resume();
