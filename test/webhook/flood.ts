import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect as connectPlain, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "node:tls";
import type { Test } from "tap";
import { Agent, request } from "undici";
import { peakMegabytesOf } from "../../bench/process-usage.ts";
import { reviewOfSize } from "../../bench/review-fixture.ts";
import { BODY_LIMIT, VALIDATE_PATH } from "../../src/webhook/app.ts";
import { between, randomFrom } from "../chaos/random.ts";
import { crdWith, FROZEN, reviewOf } from "../freeze/freeze-rule-crd.ts";
import { RunningProgram } from "../processes/program.ts";
import { TEST_SEED } from "../seed.ts";
import { issueServing } from "./issue-serving.ts";
import { reviewBomb } from "./review-bombs.ts";
import { SHIPPED_LIMITS } from "./shipped-limits.ts";

const { caPem, pair } = await issueServing();
const REVIEW = reviewOf(crdWith({ annotations: FROZEN }), crdWith({ versions: { v2: true } }));
const MIB = 1024 * 1024;

/** A webhook in a process of its own, under the limits of the manifests. */
async function start(t: Test) {
  const folder = mkdtempSync(join(tmpdir(), "ksvm-floods-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [cert, key] = [join(folder, "tls.crt"), join(folder, "tls.key")];
  writeFileSync(cert, pair.certPem);
  writeFileSync(key, pair.keyPem, { mode: 0o600 });
  const script = join(import.meta.dirname, "limited-webhook.ts");
  const { environment, nodeFlags } = SHIPPED_LIMITS;
  const program = new RunningProgram(process.execPath, [...nodeFlags, script, cert, key], {
    env: { ...process.env, ...environment },
    withoutTap: true,
  });
  t.teardown(() => program.kill());
  while (program.isRunning && !program.stdout.includes("\n")) await sleep(50);
  const ports = JSON.parse(program.stdout) as { readonly webhook: number; readonly health: number };
  return { program, ports };
}

function agentOf(t: Test, connections: number): Agent {
  const agent = new Agent({ connect: { ca: caPem }, connections });
  t.teardown(() => agent.destroy());
  return agent;
}

async function post(port: number, body: string | Buffer, dispatcher: Agent) {
  const answer = await request(`https://127.0.0.1:${port}${VALIDATE_PATH}`, {
    dispatcher,
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  });
  return { status: answer.statusCode, text: await answer.body.text() };
}

/** A connection from another address of this machine, such as a pod that attacks has. */
function plain(port: number, address: number): Socket {
  return connectPlain({ port, host: "127.0.0.1", localAddress: `127.0.0.${address}` });
}

/** Asks /livez again and again; a replica that takes longer than a kubelet waits (1 s) is late. */
function watchHealth(port: number) {
  const seen = { answers: 0, longestMs: 0, isOver: false };
  const run = async (): Promise<void> => {
    while (!seen.isOver) {
      const begun = performance.now();
      const { statusCode, body } = await request(`http://127.0.0.1:${port}/livez`);
      await body.text();
      if (statusCode !== 200) throw new Error(`/livez answers ${statusCode}`);
      seen.answers++;
      seen.longestMs = Math.max(seen.longestMs, performance.now() - begun);
      await sleep(200);
    }
  };
  const ended = run();
  return {
    end: async () => {
      seen.isOver = true;
      await ended;
      return seen;
    },
  };
}

/** Sends so many bodies that are made to use memory, and looks whether the replica outlives them within its limits. */
export async function floodWithBodies(t: Test, count: number): Promise<void> {
  const { program, ports } = await start(t);
  const agent = agentOf(t, 8);
  const random = randomFrom(TEST_SEED);
  const health = watchHealth(ports.health);
  const statuses = new Map<number, number>();
  let left = count;
  const send = async (): Promise<void> => {
    while (left-- > 0) {
      const { status } = await post(ports.webhook, reviewBomb(random, REVIEW, bytesOf(left, random)), agent);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: 8 }, send));
  const { answers, longestMs } = await health.end();
  t.comment(`/livez ${answers} times, ${longestMs.toFixed(0)} ms at most`);
  t.ok(program.isRunning);
  t.ok(answers > 0);
  t.same(
    [...statuses.keys()].filter((status) => ![200, 400, 413].includes(status)),
    [],
  );
  const peak = peakMegabytesOf(program.pid);
  t.ok(peak < SHIPPED_LIMITS.memoryMib, `${peak.toFixed(0)} MiB are within the memory limit of the manifests`);
}

/** Most are small, one of a hundred is large, one of a thousand as large as the webhook reads. */
function bytesOf(index: number, random: () => number): number {
  if (index % 1_000 === 0) return BODY_LIMIT - 10_000;
  return index % 100 === 0 ? between(random, 100_000, MIB) : between(random, 10, 4_000);
}

/** Opens so many connections and stalls bodies on some, and looks whether an API server gets its answers all the while. */
export async function floodWithConnections(t: Test, count: number): Promise<void> {
  const { program, ports } = await start(t);
  const sockets: Socket[] = [];
  t.teardown(() => sockets.forEach((socket) => socket.destroy()));
  const open = (socket: Socket): Socket => {
    socket.on("error", () => undefined);
    sockets.push(socket);
    return socket;
  };
  const stalled = Array.from({ length: 5 }, (_, index) =>
    open(connect({ socket: open(plain(ports.webhook, 2 + (index % 4))), ca: caPem, servername: "localhost" })),
  );
  for (const socket of stalled) {
    socket.write(
      `POST ${VALIDATE_PATH} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ${BODY_LIMIT}\r\n\r\n`,
    );
    socket.write(Buffer.alloc(6 * MIB, 0x20));
  }
  const flooded = { isOver: false };
  const flood = async (): Promise<void> => {
    for (let opened = 0; opened < count; opened++) {
      open(plain(ports.webhook, 2 + (opened % 200)));
      if (opened % 50 === 0) await sleep(10);
    }
    flooded.isOver = true;
  };
  const flooding = flood();
  const agent = agentOf(t, 2);
  const review = reviewOfSize(500_000);
  for (let answered = 0; !flooded.isOver || answered < 10; answered++) {
    const { status, text } = await post(ports.webhook, review, agent);
    t.equal(status, 200, text.slice(0, 100));
  }
  await flooding;
  const { statusCode, body } = await request(`http://127.0.0.1:${ports.health}/livez`);
  await body.text();
  t.equal(statusCode, 200);
  t.ok(program.isRunning);
  const peak = peakMegabytesOf(program.pid);
  t.ok(peak < SHIPPED_LIMITS.memoryMib, `${peak.toFixed(0)} MiB are within the memory limit of the manifests`);
}
