import tap from "tap";
import { discoverMigratable } from "../../src/resources/discover.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";

/** A group as /apis lists it. */
function groupOf(name: string) {
  return { name, preferredVersion: { version: "v1" }, versions: [{ version: "v1" }] };
}

function resourceOf(name: string) {
  return { name, kind: "Kind", namespaced: true, verbs: ["list", "patch"], storageVersionHash: `hash-of-${name}` };
}

const ANSWERS: Readonly<Record<string, unknown>> = {
  "/apis": { kind: "APIGroupList", groups: [groupOf("hung.example.com"), groupOf("example.com")] },
  "/api/v1": { kind: "APIResourceList", groupVersion: "v1", resources: [resourceOf("secrets")] },
  "/apis/example.com/v1": {
    kind: "APIResourceList",
    groupVersion: "example.com/v1",
    resources: [resourceOf("widgets")],
  },
};

/** An API server of which one group hangs: a real one cannot be made to hang for one group alone. */
function startHung(onAsked: () => void): ApiClient {
  const request = async ({ path, signal }: ApiRequest): Promise<unknown> => {
    if (path === "/apis/hung.example.com/v1") {
      onAsked();
      return new Promise((_resolve, reject) => {
        // Stands for the socket, which keeps the process alive: a timer of AbortSignal does not.
        const socket = setInterval(() => undefined, 1_000);
        const onAbort = (): void => {
          clearInterval(socket);
          reject(signal?.reason as Error);
        };
        signal?.addEventListener("abort", onAbort, { once: true });
      });
    }
    if (ANSWERS[path] === undefined) {
      throw new ApiError(`GET ${path}`, 404, { text: "404 page not found" });
    }
    return Promise.resolve({ body: ANSWERS[path] });
  };
  return new ApiClient({ server: "https://stand-in", request } as unknown as Transport);
}

await tap.test("discoverMigratable() names a group that hangs, and finds the others", async (t) => {
  let asked = 0;
  const client = startHung(() => asked++);
  const clock = new FakeClock();
  const retrier = new Retrier({ clock, random: () => 0.5 });
  const { signal } = new AbortController();
  const limits = { discoveryPatienceMs: 30_000, answerTimeoutMs: 50 };
  const found = await discoverMigratable({ client, clock, retrier, signal, ...limits });
  t.same(
    found.migratable.map(({ resource }) => resource),
    ["secrets", "widgets"],
  );
  t.match(found.unread, [{ resource: "*.hung.example.com/v1", group: "hung.example.com" }]);
  t.ok(asked > 1, "it is asked again");
});
