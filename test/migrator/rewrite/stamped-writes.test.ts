import { Readable } from "node:stream";
import tap from "tap";
import { UNSEEN_ARRIVALS } from "../../../src/apiservers/arrivals.ts";
import { ApiClient } from "../../../src/kube/client.ts";
import { ApiError } from "../../../src/kube/errors.ts";
import type { ApiRequest } from "../../../src/kube/api-request.ts";
import type { Body } from "../../../src/kube/reception.ts";
import type { Transport } from "../../../src/kube/transport.ts";
import type { ResumePoint } from "../../../src/migrator/rewrite/checkpoint.ts";
import { Tally } from "../../../src/migrator/rewrite/counts.ts";
import { Pacer } from "../../../src/retry/pacer.ts";
import { Retrier } from "../../../src/retry/retrier.ts";
import { RewritePass } from "../../../src/migrator/rewrite/rewrite-pass.ts";
import type { RunContext } from "../../../src/migrator/run-context.ts";
import { runUntilDone } from "../../../src/migrator/run-until-done.ts";
import { FakeClock } from "../../fake-clock.ts";

// The API server is a stand-in: the time of a real one cannot be advanced by hours.

const RESOURCE = { group: "example.com", version: "v2", resource: "widgets" };
const WEBHOOK_DOWN = 'Internal error occurred: failed calling webhook "own.example.com": context deadline exceeded';
/** Far beyond every budget of a run. */
const FAR_TOO_LONG_MS = 72 * 3_600_000;

/** Keeps objects that a mutating webhook changes with every update; another webhook fails every write of `stuck`. */
class StampingServer {
  readonly #versions = new Map(["w0", "w1", "w2", "w3", "w4", "stuck"].map((name, index) => [name, 10 + index]));
  #revision = 100;

  readonly client = new ApiClient({
    server: "https://local",
    read: async (request: ApiRequest, reader: (body: Body) => Promise<unknown>) => {
      const answer = this.#list(Number(request.query?.["limit"]));
      return { body: await reader(Readable.from([Buffer.from(JSON.stringify(answer))]) as unknown as Body) };
    },
    readBytes: async (request: ApiRequest, _limit: number, reader: (body: Buffer) => unknown) => ({
      body: reader(Buffer.from(JSON.stringify(this.#write(request.path)))),
    }),
  } as unknown as Transport);

  #list(limit: number) {
    const items = [...this.#versions.keys()].slice(0, limit).map((name) => ({ metadata: this.#metadataOf(name) }));
    const more = items.length < this.#versions.size ? { continue: "more" } : {};
    return { kind: "WidgetList", metadata: { resourceVersion: String(this.#revision), ...more }, items };
  }

  #write(path: string) {
    const name = path.split("/").at(-1) ?? "";
    if (name === "stuck") throw new ApiError("PATCH", 500, { answer: { kind: "Status", message: WEBHOOK_DOWN } });
    this.#versions.set(name, ++this.#revision);
    return { kind: "PartialObjectMetadata", metadata: this.#metadataOf(name) };
  }

  #metadataOf(name: string) {
    const resourceVersion = String(this.#versions.get(name));
    return { name, namespace: "ns", uid: `uid-${name}`, resourceVersion, managedFields: [{}] };
  }
}

await tap.test(
  "a webhook that changes objects with every update does not keep a run going whose budget is used up",
  async (t) => {
    const clock = new FakeClock();
    const { client } = new StampingServer();
    const context = {
      arrivals: UNSEEN_ARRIVALS,
      client,
      clock,
      retrier: new Retrier({ clock, random: () => 0.5 }),
      pacer: new Pacer({ clock, maxInFlight: 1, maxQps: Number.POSITIVE_INFINITY }),
      findApiServers: async () => ({ mode: "each", clients: [], identities: ["a"] }),
      emit: () => undefined,
      signal: new AbortController().signal,
    } as unknown as RunContext;
    let left: ResumePoint | undefined;
    let frozenMs = 0;
    const run = runUntilDone({
      context,
      name: "widgets.example.com",
      maxFreezeIdleMs: 300_000,
      attempt: async (attemptContext) => {
        const since = clock.monotonic();
        if (since > FAR_TOO_LONG_MS) throw new Error("it never ends");
        const pass = new RewritePass({
          ...attemptContext,
          resource: RESOURCE,
          kind: "Widget",
          otherVersions: [],
          pageSize: 500,
          dryRun: false,
          resume: left,
          tally: new Tally(),
          onPage: async ({ point }) => {
            left = point;
          },
          onObject: () => undefined,
        });
        await pass.run().finally(() => (frozenMs += clock.monotonic() - since));
      },
      // The webhook that fails sees no dry-runs.
      probe: async () => undefined,
    });
    await t.rejects(run, { code: "RetryBudgetExceeded", message: /own\.example\.com/ });
    const share = frozenMs / clock.monotonic();
    t.ok(share < 0.5, `frozen for ${Math.round(share * 100)} % of the time`);
  },
);
