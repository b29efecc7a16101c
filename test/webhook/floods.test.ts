import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect as connectPlain, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "node:tls";
import tap, { type Test } from "tap";
import { Agent, request } from "undici";
import { peakMegabytesOf } from "../../bench/process-usage.ts";
import { reviewOfSize } from "../../bench/review-fixture.ts";
import { VALIDATE_PATH } from "../../src/webhook/http-statuses.ts";
import { announcedTestSeed, between, randomFrom } from "../chaos/random.ts";
import { crdWith, FROZEN, reviewOf } from "../freeze/freeze-rule-crd.ts";
import { RunningProgram } from "../processes/program.ts";
import { issueServing } from "./issue-serving.ts";
import { reviewBomb } from "./review-bombs.ts";
import { SHIPPED_LIMITS } from "./shipped-limits.ts";

const { caPem, pair } = await issueServing();
const REVIEW = reviewOf(crdWith({ annotations: FROZEN }), crdWith({ versions: { v2: true } }));
const MIB = 1024 * 1024;
const BODIES = 100_000;

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

await tap.test(
  `${BODIES} bodies that are made to use memory end no replica under the shipped limits`,
  {
    timeout: 900_000,
  },
  async (t) => {
    const { program, ports } = await start(t);
    const agent = agentOf(t, 8);
    const random = randomFrom(announcedTestSeed("test/webhook/floods.test.ts"));
    const health = watchHealth(ports.health);
    const statuses = new Map<number, number>();
    let left = BODIES;
    const send = async (): Promise<void> => {
      while (left-- > 0) {
        // Most are small, one of a hundred is large, one of a thousand as large as the webhook reads.
        const scale =
          left % 1_000 === 0
            ? 15.9 * MIB
            : left % 100 === 0
              ? between(random, 100_000, MIB)
              : between(random, 10, 4_000);
        const { status } = await post(ports.webhook, reviewBomb(random, REVIEW, scale), agent);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      }
    };
    await Promise.all(Array.from({ length: 8 }, send));
    const { answers, longestMs } = await health.end();
    t.comment(
      `${JSON.stringify(Object.fromEntries(statuses))}, /livez ${answers} times, ${longestMs.toFixed(0)} ms at most`,
    );
    t.comment(`${peakMegabytesOf(program.pid).toFixed(0)} MiB at the peak`);
    t.ok(program.isRunning);
    t.ok(answers > 5);
    t.same(
      [...statuses.keys()].filter((status) => ![200, 400, 413, 503].includes(status)),
      [],
    );
    t.ok(peakMegabytesOf(program.pid) < SHIPPED_LIMITS.memoryMib, "within the memory limit of the manifests");
  },
);

await tap.test(
  "5,000 connections and stalled bodies keep no API server from its answer",
  { timeout: 600_000 },
  async (t) => {
    const { program, ports } = await start(t);
    const sockets: Socket[] = [];
    t.teardown(() => sockets.forEach((socket) => socket.destroy()));
    const open = (socket: Socket): Socket => {
      socket.on("error", () => undefined);
      sockets.push(socket);
      return socket;
    };
    const stalled = Array.from({ length: 40 }, (_, index) =>
      open(connect({ socket: open(plain(ports.webhook, 2 + (index % 4))), ca: caPem, servername: "localhost" })),
    );
    for (const socket of stalled) {
      socket.write(
        `POST ${VALIDATE_PATH} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ${15.9 * MIB}\r\n\r\n`,
      );
      socket.write(Buffer.alloc(15 * MIB, 0x20));
    }
    const flood = (async () => {
      for (let count = 0; count < 5_000; count++) {
        open(plain(ports.webhook, 2 + (count % 200)));
        if (count % 50 === 0) await sleep(10);
      }
    })();
    const agent = agentOf(t, 2);
    const review = reviewOfSize(500_000);
    let longestMs = 0;
    let answered = 0;
    const flooded = { isOver: false };
    void flood.then(() => (flooded.isOver = true));
    while (!flooded.isOver || answered < 50) {
      const begun = performance.now();
      const { status, text } = await post(ports.webhook, review, agent);
      t.equal(status, 200, text.slice(0, 100));
      longestMs = Math.max(longestMs, performance.now() - begun);
      answered++;
    }
    await flood;
    const { statusCode, body } = await request(`http://127.0.0.1:${ports.health}/livez`);
    await body.text();
    t.equal(statusCode, 200);
    t.comment(
      `${answered} reviews, ${longestMs.toFixed(0)} ms at most, ${peakMegabytesOf(program.pid).toFixed(0)} MiB at the peak`,
    );
    t.ok(program.isRunning);
    t.ok(peakMegabytesOf(program.pid) < SHIPPED_LIMITS.memoryMib, "within the memory limit of the manifests");
  },
);
