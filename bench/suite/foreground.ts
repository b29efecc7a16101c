// Another client of the API server: so many pairs of a GET and a PUT in a second. foreground.ts CONFIGURATION, which is JSON.
// It ends with its input, and prints what each request took.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent } from "undici";

/** What the client does. */
export interface Foreground {
  readonly kubeconfig: string;
  /** Of a ConfigMap that exists. */
  readonly namespace: string;
  readonly name: string;
  readonly pairsPerSecond: number;
}

/** One request: when it began, on the clock of the machine, and what it took, in milliseconds. */
export type Latency = readonly [at: number, ms: number];

const { kubeconfig, namespace, name, pairsPerSecond } = JSON.parse(process.argv[2] ?? "") as Foreground;
const { clusters, users } = JSON.parse(readFileSync(kubeconfig, "utf8")) as {
  clusters: [{ cluster: { server: string; "certificate-authority-data": string } }];
  users: [{ user: { token: string } }];
};
const [{ cluster }] = clusters;
const agent = new Agent({
  connections: 8,
  connect: { ca: Buffer.from(cluster["certificate-authority-data"], "base64").toString() },
});
const headers = { authorization: `Bearer ${users[0].user.token}`, "content-type": "application/json" };
const path = `/api/v1/namespaces/${namespace}/configmaps/${name}`;
const latencies: Latency[] = [];

async function timed(method: "GET" | "PUT", body?: string): Promise<string> {
  const [at, startedAt] = [Date.now(), performance.now()];
  const answer = await agent.request({
    origin: cluster.server,
    method,
    path,
    headers,
    ...(body === undefined ? {} : { body }),
  });
  const text = await answer.body.text();
  latencies.push([at, performance.now() - startedAt]);
  return answer.statusCode === 200 ? text : "";
}

const over = new AbortController();
process.stdin.on("end", () => over.abort()).resume();
const pending = new Set<Promise<void>>();
// An open loop: a slow answer delays no later request. Of two writes at the same time one meets a conflict, which is an answer as well.
for (let pair = 0, startedAt = performance.now(); !over.signal.aborted; pair++) {
  const task = (async () => {
    const object = await timed("GET");
    if (object !== "") await timed("PUT", object);
  })().catch(() => undefined);
  pending.add(task);
  void task.finally(() => pending.delete(task));
  await sleep(Math.max(0, startedAt + ((pair + 1) * 1_000) / pairsPerSecond - performance.now()));
}
await Promise.all(pending);
console.log(JSON.stringify(latencies));
await agent.close();
