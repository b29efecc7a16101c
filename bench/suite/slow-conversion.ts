// A conversion webhook that takes a while for each review. slow-conversion.ts CONFIGURATION, which is JSON; it prints its port, and ends with
// its input.
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

const { cert, key, ms } = JSON.parse(process.argv[2] ?? "") as { cert: string; key: string; ms: number };

interface Review {
  readonly apiVersion: string;
  readonly kind: string;
  readonly request: { readonly uid: string; readonly desiredAPIVersion: string; readonly objects: readonly object[] };
}

const server = createServer({ cert, key }, (incoming, outgoing) => {
  void (async () => {
    const { apiVersion, kind, request } = JSON.parse(await text(incoming)) as Review;
    const convertedObjects = request.objects.map((object) => ({ ...object, apiVersion: request.desiredAPIVersion }));
    const response = { uid: request.uid, result: { status: "Success" }, convertedObjects };
    setTimeout(() => outgoing.end(JSON.stringify({ apiVersion, kind, response })), ms);
  })();
});
server.listen(0, "127.0.0.1", () => console.log((server.address() as AddressInfo).port));
process.stdin.on("end", () => process.exit()).resume();
