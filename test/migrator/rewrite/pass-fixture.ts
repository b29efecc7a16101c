import type { ServerResponse } from "node:http";

import type { Test } from "tap";

import { ApiClient } from "../../../src/kube/client.ts";
import type { ListedObject } from "../../../src/kube/listed-object.ts";
import type { ResumePoint } from "../../../src/migrator/rewrite/checkpoint.ts";
import { type Counts, Tally } from "../../../src/migrator/rewrite/counts.ts";
import { Pacer } from "../../../src/retry/pacer.ts";
import { Retrier } from "../../../src/retry/retrier.ts";
import type { Advance } from "../../../src/retry/run-budget.ts";
import { RewritePass, type RewritePassOptions, type Settled } from "../../../src/migrator/rewrite/rewrite-pass.ts";
import { FakeClock } from "../../fake-clock.ts";
import { type SeenRequest, sendJson, sendStatus, startServer } from "../../kube/local-server.ts";

// The server is local: what a run keeps for a later one while an object waits for its second try, and what it does with
// more such objects than it keeps, cannot be seen on a real one.

/** What the server says of an object that it does not accept. */
export const DENIED = 'admission webhook "own.example.com" denied the request: no';

/** What became of a pass. */
export interface Pass {
  readonly tally: Tally;
  readonly points: readonly ResumePoint[];
  readonly clock: FakeClock;
  /** Names of the objects that were written, in order, refused tries included. */
  readonly tries: readonly string[];
  readonly advances: readonly Advance[];
}

/** Runs a pass over `count` objects on pages of `pageSize`. */
export async function pass(
  t: Test,
  options: {
    readonly count: number;
    readonly pageSize: number;
    readonly accepts: (name: string, tried: number) => boolean;
    readonly onObject?: (counts: Readonly<Counts>) => void;
    readonly onAdvance?: (advance: Advance) => void;
    /** Answers a list otherwise; `false` where it does not. */
    readonly onList?: (request: SeenRequest, response: ServerResponse) => boolean;
    /** Names of the objects that are written already. @default none */
    readonly written?: Set<string>;
    /** Where an earlier attempt stood after its last whole page. @default nowhere */
    readonly left?: Settled | undefined;
    /** Called when a page is done. */
    readonly onPage?: (left: Settled) => void | Promise<void>;
    /** @default as of the pass */
    readonly rewrite?: RewritePassOptions["rewrite"];
    readonly isDueLate?: (object: ListedObject) => boolean;
    readonly onObjectsRead?: () => void;
  },
): Promise<Pass> {
  const { count, pageSize, accepts } = options;
  const tries: string[] = [];
  const { left, onPage, written = new Set<string>() } = options;
  const server = await startServer(t, (request, response) => {
    if (request.method === "GET") {
      if (options.onList?.(request, response) !== true) sendJson(response, 200, pageOf(request, count, written));
      return;
    }
    const name = request.path.split("/").at(-1) ?? "";
    tries.push(name);
    if (accepts(name, tries.filter((tried) => tried === name).length)) {
      written.add(name);
      sendJson(response, 200, { kind: "PartialObjectMetadata", metadata: metadataOf(name, "101") });
    } else {
      sendStatus(response, 404, { reason: "NotFound", message: DENIED, details: { name } });
    }
  });
  const clock = new FakeClock();
  const tally = new Tally(left?.tally);
  const points: ResumePoint[] = [];
  const advances: Advance[] = [];
  const rewriting = new RewritePass({
    client: new ApiClient(server.transport()),
    clock,
    retrier: new Retrier({ clock, random: () => 0.5 }),
    pacer: new Pacer({ clock, maxInFlight: 4, maxQps: Number.POSITIVE_INFINITY }),
    resource: { group: "example.com", version: "v2", resource: "widgets" },
    kind: "Widget",
    otherVersions: [],
    pageSize,
    dryRun: false,
    tally,
    resume: left?.point,
    position: left?.position,
    emit: () => undefined,
    onAdvance: (advance) => {
      advances.push(advance);
      options.onAdvance?.(advance);
    },
    signal: new AbortController().signal,
    onPage: async (settled) => {
      points.push(settled.point);
      await onPage?.(settled);
    },
    onObject: () => options.onObject?.({ ...tally.counts }),
    ...(options.rewrite === undefined ? {} : { rewrite: options.rewrite }),
    ...(options.isDueLate === undefined ? {} : { isDueLate: options.isDueLate }),
    reads: { pageRead: () => options.onObjectsRead?.(), objectRead: async () => undefined },
  });
  await rewriting.run();
  return { tally, points, clock, tries, advances };
}

function metadataOf(name: string, resourceVersion = "50") {
  const managedFields = [{ manager: "kubectl", operation: "Update" }];
  return { name, namespace: "ns", uid: `uid-${name}`, resourceVersion, managedFields };
}

function pageOf({ query }: SeenRequest, count: number, written: ReadonlySet<string>) {
  const begin = Number(query.get("continue") ?? 0);
  const end = Math.min(count, begin + Number(query.get("limit")));
  const items = Array.from({ length: end - begin }, (_, index) => {
    const name = `w${begin + index}`;
    return { metadata: metadataOf(name, written.has(name) ? "101" : "50") };
  });
  const metadata = { resourceVersion: "100", ...(end < count ? { continue: String(end) } : {}) };
  return { kind: "PartialObjectMetadataList", metadata, items };
}
