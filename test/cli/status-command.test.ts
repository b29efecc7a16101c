import { once } from "node:events";
import { join } from "node:path";
import { PassThrough, Writable } from "node:stream";
import tap from "tap";

import { STATUS_COMMAND } from "../../src/cli/commands/status-command.ts";
import { groupList, kubeconfigFor, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const MIGRATION = {
  metadata: { name: "widgets-x1", uid: "u", resourceVersion: "1", creationTimestamp: "2026-01-01T00:00:00Z" },
  spec: { resource: { group: "example.com", version: "v1", resource: "widgets" } },
  status: { conditions: [{ type: "Running", status: "True" }], progress: "5/9" },
};

const EMPTY = { kind: "List", metadata: { resourceVersion: "1" }, items: [] };

// A stand-in: the test is about what a terminal is sent; test/integration/status.test.ts asks a real API server.
const answers: Readonly<Record<string, unknown>> = {
  "/version": { gitVersion: "v1.36.3" },
  "/apis": groupList("migration.k8s.io/v1alpha1"),
  "/apis/migration.k8s.io/v1alpha1/storageversionmigrations": { ...EMPTY, items: [MIGRATION] },
  "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": EMPTY,
  "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases": EMPTY,
  "/apis/coordination.k8s.io/v1/namespaces/kube-storage-migration/leases": EMPTY,
};

for (const [output, expected] of [
  ["table", /widgets-x1 .*Running +5\/9/],
  [
    "json",
    /^\{"apiVersion":"cli.ksvm.sigs.k8s.io\/v1alpha1","kind":"Status","controller":\{"state":"none"\},"migrations":\[\{"name":"widgets-x1",.*\n$/,
  ],
] as const) {
  await tap.test(`ksvm status -w keeps showing ${output} on a terminal until it is interrupted`, async (t) => {
    const server = await startServer(t, ({ path }, response) =>
      path in answers ? sendJson(response, 200, answers[path]) : sendStatus(response, 404),
    );
    const stdout = Object.assign(new PassThrough(), { isTTY: true, columns: 160, rows: 40 });
    const interruption = new AbortController();
    const io = { stdout, stderr: new PassThrough(), signal: interruption.signal };
    let shown = "";
    stdout.on("data", (chunk: Buffer) => (shown += chunk.toString()));
    const kubeconfig = join(t.testdir({ config: kubeconfigFor(server.url) }), "config");
    const ended = STATUS_COMMAND.run(io, { flags: { kubeconfig, output, watch: true }, operands: [] }, () => undefined);
    while (!expected.test(shown)) {
      await once(stdout, "data");
    }
    interruption.abort(new Error("Ctrl-C"));
    t.equal(await ended, 130);
    t.match(shown, expected);
  });
}

await tap.test(
  "ksvm status -w ends at the first change that nobody reads any more, as behind a pipe to head",
  async (t) => {
    let looks = 0;
    const server = await startServer(t, ({ path }, response) => {
      if (!(path in answers)) return sendStatus(response, 404);
      if (!path.endsWith("/storageversionmigrations")) return sendJson(response, 200, answers[path]);
      const changed = { ...MIGRATION, status: { ...MIGRATION.status, progress: `${looks++}/9` } };
      sendJson(response, 200, { kind: "List", metadata: { resourceVersion: "1" }, items: [changed] });
    });
    let writes = 0;
    const gone = Object.assign(new Error("write EPIPE"), { code: "EPIPE" });
    // As process.stdout, which is not destroyed by an error.
    const stdout = new Writable({
      autoDestroy: false,
      write: (_chunk, _encoding, done) => done(++writes > 1 ? gone : null),
    });
    const kubeconfig = join(t.testdir({ config: kubeconfigFor(server.url) }), "config");
    const io = { stdout, stderr: new PassThrough(), signal: new AbortController().signal };
    const flags = { kubeconfig, output: "name", watch: true };
    t.equal(await STATUS_COMMAND.run(io, { flags, operands: [] }, () => undefined), 0);
    t.equal(writes, 2);
  },
);
