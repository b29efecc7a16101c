import { fileURLToPath } from "node:url";
import tap, { type Test } from "tap";
import type { StandInTask } from "./stand-in-worker.ts";
import { type PoolOptions, WorkerPool } from "./worker-pool.ts";

const module = fileURLToPath(new URL("stand-in-worker.ts", import.meta.url));

function poolOf(t: Test, options: Partial<PoolOptions> = {}): WorkerPool<StandInTask, number> {
  const pool = new WorkerPool<StandInTask, number>({ module, workers: 2, ...options });
  t.teardown(() => pool.kill());
  return pool;
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

await tap.test("WorkerPool does tasks in as many processes as it may have, and ends them", async (t) => {
  const pool = poolOf(t);
  const done = await Promise.all(Array.from({ length: 20 }, () => pool.do("wait")));
  const pids = new Set(done.map((one) => (one.kind === "result" ? one.result : 0)));
  t.equal(pids.size, 2);
  t.notOk(pids.has(process.pid));
  await pool.close();
  t.same([...pids].filter(isRunning), []);
  t.same(await pool.do("pid"), { kind: "ended" });
});

await tap.test("a worker that dies costs the task that it did, and no other", async (t) => {
  const pool = poolOf(t, { workers: 1 });
  const done = await Promise.all((["pid", "die", "pid", "throw", "pid"] as const).map((task) => pool.do(task)));
  t.same(
    done.map(({ kind }) => kind),
    ["result", "lost", "result", "lost", "result"],
  );
  t.match(done[1], { why: /^the process ended with SIGKILL/ });
  t.match(done[3], { why: /^the process ended with code 1: [^]*what the worker says at last/ });
});

await tap.test("a worker that hangs is ended, and costs the task that it did", async (t) => {
  // Within that time the next worker has to start and to answer, on a busy machine as well.
  const pool = poolOf(t, { workers: 1, hangSeconds: 8 });
  const done = await Promise.all((["hang", "pid"] as const).map((task) => pool.do(task)));
  t.same(done[0], { kind: "lost", why: "no answer in 8 s" });
  t.equal(done[1]?.kind, "result");
});

await tap.test("a worker is replaced after some tasks, or when it has grown", async (t) => {
  const pool = poolOf(t, { workers: 1, maxTasks: 2, maxBytes: 250_000_000 });
  const tasks = ["pid", "pid", "pid", "grow", "pid"] as const;
  const pids: unknown[] = [];
  for (const task of tasks) {
    const done = await pool.do(task);
    pids.push(done.kind === "result" ? done.result : done);
  }
  t.equal(pids[0], pids[1]);
  t.not(pids[1], pids[2]);
  t.equal(pids[2], pids[3]);
  t.not(pids[3], pids[4]);
  const grower = poolOf(t, { workers: 1, maxBytes: 250_000_000 });
  const first = await grower.do("grow");
  t.not(((await grower.do("pid")) as { result: number }).result, (first as { result: number }).result);
});

await tap.test("where no worker can start, no task is begun again and again", async (t) => {
  const pool = poolOf(t, { env: { BROKEN_WORKER: "yes" } });
  const done = await Promise.all(Array.from({ length: 10 }, () => pool.do("pid")));
  t.match(done[0], { kind: "lost", why: /^(a worker cannot start: )?the process ended with code 1: / });
  t.match(done[9], { kind: "lost", why: /^a worker cannot start: [^]*this worker cannot start/ });
  t.match(pool.failure, /this worker cannot start/);
});

await tap.test("kill() ends a worker that hangs, and what waits", async (t) => {
  const pool = poolOf(t, { workers: 1 });
  const done = Promise.all((["hang", "pid", "pid"] as const).map((task) => pool.do(task)));
  const { pids } = pool;
  await pool.kill();
  t.same(await done, [{ kind: "ended" }, { kind: "ended" }, { kind: "ended" }]);
  t.same(pids.filter(isRunning), []);
});
