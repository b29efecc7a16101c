import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import tap from "tap";

import { type RunningProgram, startProgram, type Teardown } from "../processes/program.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { startControlPlane } from "../control-plane/control-plane.ts";

const CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS = "/apis/example.com/v1/namespaces/default/widgets";
const CRD = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "widgets.example.com" },
  spec: {
    group: "example.com",
    scope: "Namespaced",
    names: { plural: "widgets", singular: "widget", kind: "Widget", listKind: "WidgetList" },
    versions: ["v1", "v2"].map((name) => ({
      name,
      served: true,
      storage: name === "v1",
      schema: { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } },
    })),
  },
};

await ensureBinaries(["etcd", "kube-apiserver"]);

const started = performance.now();
const controlPlane = await startControlPlane({ users: [{ name: "jane", groups: ["team"] }] });
tap.teardown(() => controlPlane.stop());
tap.comment(`one apiserver served after ${Math.round(performance.now() - started)} ms`);

await tap.test("shows in etcd which version an object is stored in", async (t) => {
  t.equal((await controlPlane.request(CRDS, { method: "POST", body: CRD })).status, 201);
  await createWidget("a");
  t.match(await controlPlane.stored.storedObjects("example.com", "widgets"), [
    { namespace: "default", name: "a", apiVersion: "example.com/v1", kind: "Widget" },
  ]);
  t.match(await controlPlane.stored.storedCrd("widgets.example.com"), { spec: { group: "example.com" } });
  t.match(await controlPlane.stored.objectsUnder("/registry/namespaces/default"), [
    { apiVersion: "v1", kind: "Namespace" },
  ]);
});

await tap.test("reads more objects than fit one page, as of one revision", async (t) => {
  const count = 1010;
  const names = Array.from({ length: count }, (_, i) => `many-${i}`);
  while (names.length > 0) await Promise.all(names.splice(0, 32).map((name) => createWidget(name)));
  const revision = await controlPlane.stored.currentRevision();
  await createWidget("later");
  const countAt = (options: { revision?: number }): Promise<Record<string, number>> =>
    controlPlane.stored.countByVersion("example.com", "widgets", options);
  t.same(await countAt({ revision }), { "example.com/v1": count + 1 });
  t.same(await countAt({}), { "example.com/v1": count + 2 });
  await controlPlane.stored.compact(await controlPlane.stored.currentRevision());
  await t.rejects(countAt({ revision }), /compacted/);
});

await tap.test("knows further users, whose rights are up to RBAC", async (t) => {
  t.equal((await controlPlane.request(WIDGETS, { user: "jane" })).status, 403);
  t.match(controlPlane.kubeconfigTextFor("jane"), /"name": "jane"/);
  t.throws(() => controlPlane.kubeconfigTextFor("nobody"), /"nobody"/);
});

await tap.test("adds an apiserver that sees the same data", async (t) => {
  await controlPlane.addApiserver();
  t.equal((await controlPlane.request(`${WIDGETS}/a`, { apiserver: 1 })).status, 200);
});

await tap.test("pauses one apiserver while the other serves", async (t) => {
  const [first] = controlPlane.apiservers;
  first?.pause();
  await t.rejects(controlPlane.request(`${WIDGETS}/a`, { timeoutMs: 500 }));
  t.equal((await controlPlane.request(`${WIDGETS}/a`, { apiserver: 1 })).status, 200);
  first?.resume();
  await first?.waitReady();
  t.equal((await controlPlane.request(`${WIDGETS}/a`)).status, 200);
});

await tap.test("keeps the data over a killed etcd and apiserver", async (t) => {
  await controlPlane.etcd.restart();
  const former = controlPlane.apiservers[0]?.pid;
  await controlPlane.restartApiserver(0, { requestTimeout: "30s" });
  t.not(controlPlane.apiservers[0]?.pid, former);
  t.equal((await controlPlane.request(`${WIDGETS}/a`)).status, 200);
});

await tap.test("stop() leaves no process and no folder, even of paused and dead ones", async (t) => {
  const pids = controlPlane.processes.flatMap(({ pid }) => pid ?? []);
  t.equal(pids.length, 3);
  controlPlane.apiservers[0]?.pause();
  await controlPlane.apiservers[1]?.kill();
  await controlPlane.stop();
  t.same(pids.filter(isAlive), []);
  t.notOk(existsSync(controlPlane.dir));
  await t.resolves(controlPlane.stop());
});

await tap.test("startControlPlane() rejects with the log when a flag is wrong, and leaves no process", async (t) => {
  await t.rejects(startControlPlane({ extraArgs: ["--no-such-flag"] }), /unknown flag: --no-such-flag/);
});

await tap.test("a killed parent leaves no process and no folder", async (t) => {
  const module = JSON.stringify(new URL("../control-plane/control-plane.ts", import.meta.url).href);
  const script = `
    import { startControlPlane } from ${module};
    const { dir, processes } = await startControlPlane({ apiservers: 0 });
    console.log(JSON.stringify({ dir, pids: processes.map(({ pid }) => pid) }));
    setInterval(() => {}, 1000);`;
  const parent = startScript(t, script);
  const line = await firstLineOf(parent);
  const { dir, pids } = JSON.parse(line) as { dir: string; pids: number[] };
  t.ok(pids.length === 1 && pids.every(isAlive), "etcd alone is enough to see it");
  await parent.kill();
  for (let tries = 0; (pids.some(isAlive) || existsSync(dir)) && tries < 100; tries++) await sleep(50);
  t.same(pids.filter(isAlive), []);
  t.notOk(existsSync(dir));
});

await tap.test("a killed parent takes the children along that are to end with it", async (t) => {
  const module = JSON.stringify(new URL("../processes/watchdog.ts", import.meta.url).href);
  const script = `
    import { spawn } from "node:child_process";
    import { endWithThisProcess } from ${module};
    const child = spawn("sleep", ["600"], { stdio: "ignore" });
    endWithThisProcess(child);
    console.log(child.pid);`;
  const parent = startScript(t, script);
  const line = await firstLineOf(parent);
  const pid = Number(line);
  t.ok(isAlive(pid));
  await parent.kill();
  for (let tries = 0; isAlive(pid) && tries < 100; tries++) await sleep(50);
  t.notOk(isAlive(pid));
});

function startScript(t: Teardown, script: string): RunningProgram {
  return startProgram(t, process.execPath, ["--input-type=module", "-e", script], { stderr: "inherit" });
}

async function firstLineOf(program: RunningProgram): Promise<string> {
  while (!program.stdout.includes("\n")) {
    if (!program.isRunning) throw new Error("the script ended without a line");
    await sleep(20);
  }
  return program.stdout.slice(0, program.stdout.indexOf("\n"));
}

async function createWidget(name: string): Promise<void> {
  const body = { apiVersion: "example.com/v1", kind: "Widget", metadata: { name } };
  for (let tries = 0; tries < 200; tries++) {
    const { status } = await controlPlane.request(WIDGETS, { method: "POST", body });
    if (status === 201) return;
    // A new custom resource is not served at once.
    if (status !== 404) throw new Error(`Cannot create widget "${name}": ${status}`);
    await sleep(50);
  }
  throw new Error(`Cannot create widget "${name}": the resource is not served`);
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
