// The limit: the same writes as a migration sends, with nothing around them. bare-loop.ts CONFIGURATION, which is JSON.
import { readFileSync } from "node:fs";
import { Agent } from "undici";

/** What one loop does. */
export interface BareLoop {
  readonly kubeconfig: string;
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  readonly inFlight: number;
  readonly write: "apply" | "merge";
  readonly answer: "metadata" | "whole";
}

interface Item {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly resourceVersion: string;
  };
}

const ANSWERS = {
  metadata: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
  whole: "application/json",
} as const;
const TYPES = { apply: "application/apply-patch+yaml", merge: "application/merge-patch+json" } as const;

const loop = JSON.parse(process.argv[2] ?? "") as BareLoop;
const { clusters, users } = JSON.parse(readFileSync(loop.kubeconfig, "utf8")) as {
  clusters: [{ cluster: { server: string; "certificate-authority-data": string } }];
  users: [{ user: { token: string } }];
};
const [{ cluster }] = clusters;
const agent = new Agent({
  connections: loop.inFlight,
  pipelining: 1,
  connect: { ca: Buffer.from(cluster["certificate-authority-data"], "base64").toString() },
});
const authorization = `Bearer ${users[0].user.token}`;
const folder = `/apis/${loop.group}/${loop.version}`;

async function send(
  method: "GET" | "PATCH",
  path: string,
  headers: Record<string, string>,
  body?: string,
): Promise<string> {
  const answer = await agent.request({
    origin: cluster.server,
    method,
    path,
    headers: { authorization, ...headers },
    ...(body === undefined ? {} : { body }),
  });
  const text = await answer.body.text();
  if (answer.statusCode !== 200) throw new Error(`${method} ${path}: ${answer.statusCode}: ${text.slice(0, 300)}`);
  return text;
}

const listed = await send("GET", `${folder}/${loop.plural}`, {
  accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
});
const queue = (JSON.parse(listed) as { items: Item[] }).items.values();
const worker = async (): Promise<void> => {
  for (const {
    metadata: { name, namespace, uid, resourceVersion },
  } of queue) {
    await send(
      "PATCH",
      `${folder}/namespaces/${namespace}/${loop.plural}/${name}?fieldManager=bare-loop`,
      { accept: ANSWERS[loop.answer], "content-type": TYPES[loop.write] },
      JSON.stringify({
        apiVersion: `${loop.group}/${loop.version}`,
        kind: loop.kind,
        metadata: { name, namespace, uid, resourceVersion },
      }),
    );
  }
};
const startedAt = performance.now();
await Promise.all(Array.from({ length: loop.inFlight }, worker));
console.log(JSON.stringify({ seconds: (performance.now() - startedAt) / 1_000 }));
await agent.close();
