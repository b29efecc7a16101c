import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import tap, { type Test } from "tap";

import { WAIT_COMMAND } from "../../src/cli/commands/wait-command.ts";
import { crdWith } from "../api/crd-with.ts";
import { groupList, kubeconfigFor, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const NAME = "widgets.example.com";
const CRD_PATH = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${NAME}`;

// As GitOps has it: no generated name, but that of the resource.
const MIGRATION = {
  metadata: { name: NAME, uid: "u", resourceVersion: "1", creationTimestamp: "2026-01-01T00:00:00Z" },
  spec: { resource: { group: "example.com", version: "v1", resource: "widgets" } },
  status: { conditions: [{ type: "Succeeded", status: "True" }] },
};

/** Kubernetes' own migrator has pruned storedVersions, and did not succeed. */
const IN_TREE_FAILED = { type: "StorageMigrating", status: "False", reason: "MigrationFailed" };

type Answer = readonly [status: number, body: object];

const ABSENT: Answer = [404, { kind: "Status", reason: "NotFound", details: { name: NAME } }];
const FORBIDDEN: Answer = [
  403,
  { kind: "Status", reason: "Forbidden", message: `crds "${NAME}" is forbidden: User "a" cannot get resource "crds"` },
];

async function wait(
  t: Test,
  crd: Answer,
  migration: typeof MIGRATION = MIGRATION,
): Promise<{ code: number; said: string }> {
  // A stand-in: test/integration/wait.test.ts asks a real API server.
  const answers: Readonly<Record<string, unknown>> = {
    "/version": { gitVersion: "v1.36.3" },
    "/apis": groupList("migration.k8s.io/v1alpha1"),
    "/apis/migration.k8s.io/v1alpha1/storageversionmigrations": {
      kind: "List",
      metadata: { resourceVersion: "1" },
      items: [migration],
    },
  };
  const server = await startServer(t, ({ path }, response) => {
    if (path === CRD_PATH) {
      return sendJson(response, ...crd);
    }
    return path in answers ? sendJson(response, 200, answers[path]) : sendStatus(response, 404);
  });
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const said = Promise.all([text(stdout), text(stderr)]);
  const kubeconfig = join(t.testdir({ config: kubeconfigFor(server.url) }), "config");
  const io = { stdout, stderr, signal: new AbortController().signal };
  const flags = { kubeconfig, timeout: "1s" };
  const code = await WAIT_COMMAND.run(io, { flags, operands: [migration.metadata.name] }, () => undefined).catch(
    (error: unknown) => {
      stderr.write(String(error));
      return 1;
    },
  );
  stdout.end();
  stderr.end();
  return { code, said: (await said).join("") };
}

await tap.test("ksvm wait goes by storedVersions of a CRD also where a migration is called like it", async (t) => {
  t.match(await wait(t, [200, crdWith()]), { code: 1, said: /waiting: storedVersions is v1,v2/ });
  t.match(await wait(t, [200, crdWith({ storedVersions: ["v2"] })]), { code: 0, said: /done: storedVersions is v2 / });
});

await tap.test("ksvm wait goes by the migration where its name is no CRD's, or this user may not tell", async (t) => {
  t.match(await wait(t, ABSENT), { code: 0, said: /done: migrations\/widgets\.example\.com is Succeeded/ });
  t.match(await wait(t, FORBIDDEN), { code: 0, said: /done: migrations\/widgets\.example\.com is Succeeded/ });
});

await tap.test("ksvm wait believes no migration whose CRD says otherwise", async (t) => {
  const migration = { ...MIGRATION, metadata: { ...MIGRATION.metadata, name: "m" } };
  const said = /incomplete: migrations\/m is Succeeded; .*storedVersions still lists v1: another migrator/;
  t.match(await wait(t, [200, crdWith()], migration), { code: 3, said });
  t.match(await wait(t, [200, crdWith({ storedVersions: ["v2"] })], migration), { code: 0, said: /done: / });
  const proven = { ...migration, status: { ...migration.status, crd: "uid-1/3" } };
  t.match(await wait(t, [200, crdWith()], proven), { code: 0, said: /done: .*--manage-stored-versions=false/ });
  const doubted = { ...crdWith(), status: { storedVersions: ["v2"], conditions: [IN_TREE_FAILED] } };
  const unproven = /incomplete: migrations\/m is Succeeded; .*objects may be stored in v1, /;
  t.match(await wait(t, [200, doubted], migration), { code: 3, said: unproven });
  t.match(await wait(t, [200, doubted], proven), { code: 0, said: /done: / });
});
