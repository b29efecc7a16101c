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
  status: { conditions: [{ type: "Succeeded", status: "True", reason: "Migrated" }] },
};

/** As kube-storage-version-migrator ends one, without a reason. */
const THEIRS = { ...MIGRATION, status: { conditions: [{ type: "Succeeded", status: "True" }] } };

/** Kubernetes' own migrator has pruned storedVersions, and did not succeed. */
const IN_TREE_FAILED = { type: "StorageMigrating", status: "False", reason: "MigrationFailed" };

type Answer = readonly [status: number, body: object];

const ABSENT: Answer = [404, { kind: "Status", reason: "NotFound", details: { name: NAME } }];
const FORBIDDEN: Answer = [
  403,
  { kind: "Status", reason: "Forbidden", message: `crds "${NAME}" is forbidden: User "a" cannot get resource "crds"` },
];

interface Given {
  /** @default the name of the migration */
  readonly operands?: readonly string[];
  /** What the first list shows in its place. */
  readonly before?: object;
}

async function wait(
  t: Test,
  crd: Answer,
  migration: object & { readonly metadata: { readonly name: string } } = MIGRATION,
  { before = migration, operands = [migration.metadata.name] }: Given = {},
): Promise<{ code: number; said: string }> {
  let lists = 0;
  const list = (): object => ({ metadata: { resourceVersion: "1" }, items: [lists++ === 0 ? before : migration] });
  // A stand-in: test/integration/wait.test.ts asks a real API server.
  const answers: Readonly<Record<string, () => unknown>> = {
    "/version": () => ({ gitVersion: "v1.36.3" }),
    "/apis": () => groupList("migration.k8s.io/v1alpha1"),
    "/apis/migration.k8s.io/v1alpha1/storageversionmigrations": () => ({ kind: "List", ...list() }),
  };
  const server = await startServer(t, ({ path }, response) => {
    if (path === CRD_PATH) {
      return sendJson(response, ...crd);
    }
    const answer = answers[path];
    return answer === undefined ? sendStatus(response, 404) : sendJson(response, 200, answer());
  });
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const said = Promise.all([text(stdout), text(stderr)]);
  const kubeconfig = join(t.testdir({ config: kubeconfigFor(server.url) }), "config");
  const io = { stdout, stderr, signal: new AbortController().signal };
  const flags = { kubeconfig, timeout: before === migration ? "1s" : "5s" };
  const code = await WAIT_COMMAND.run(io, { flags, operands }, () => undefined).catch((error: unknown) => {
    stderr.write(String(error));
    return 1;
  });
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
  const migration = { ...THEIRS, metadata: { ...MIGRATION.metadata, name: "m" } };
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

await tap.test("ksvm wait believes no migration without a CRD that ksvm has not brought to its end", async (t) => {
  const said =
    /incomplete: migrations\/widgets\.example\.com is Succeeded; .* ksvm migrate widgets\.example\.com --standalone/;
  t.match(await wait(t, ABSENT, THEIRS), { code: 3, said });
  t.match(await wait(t, FORBIDDEN, THEIRS), { code: 3, said });
  const conditions = [{ type: "Succeeded", status: "True", reason: "NothingToDo" }];
  const found = { ...MIGRATION, status: { conditions } };
  t.match(await wait(t, FORBIDDEN, found), { code: 0, said: /done: / }, "it found a CRD that was clean");
});

await tap.test(
  "ksvm wait without names ends with what is under way, also where storedVersions stays as it is",
  async (t) => {
    const before = { ...MIGRATION, status: { conditions: [{ type: "Running", status: "True" }] } };
    const given = { before, operands: [] };
    // As with --manage-stored-versions=false.
    const proven = { ...MIGRATION, status: { ...MIGRATION.status, crd: "uid-1/3" } };
    const left =
      /done: migrations\/widgets\.example\.com is Succeeded: .*storedVersions still lists v1: .*--manage-stored-versions=false/;
    t.match(await wait(t, [200, crdWith()], proven, given), { code: 0, said: left });
    const theirs = /incomplete: .*storedVersions still lists v1: another migrator/;
    t.match(await wait(t, [200, crdWith()], THEIRS, given), { code: 3, said: theirs });
    t.match(await wait(t, [200, crdWith({ storedVersions: ["v2"] })], proven, given), { code: 0, said: /v2 alone/ });
    const named = { ...given, operands: [NAME] };
    t.match(await wait(t, [200, crdWith()], proven, named), { code: 1, said: /waiting: storedVersions is v1,v2/ });
  },
);

await tap.test("ksvm wait without names ends with a re-encryption, to which storedVersions says nothing", async (t) => {
  const metadata = { ...MIGRATION.metadata, annotations: { "ksvm.sigs.k8s.io/reencrypt": "true" } };
  const before = { ...MIGRATION, metadata, status: { conditions: [{ type: "Running", status: "True" }] } };
  const given = { before, operands: [] };
  const ended = (condition: object) => ({ ...before, status: { conditions: [{ status: "True", ...condition }] } });
  const done = ended({ type: "Succeeded", reason: "Reencrypted" });
  t.match(await wait(t, [200, crdWith()], done, given), { code: 0, said: /done: .* is Succeeded: Reencrypted/ });
  const failed = ended({ type: "Failed", reason: "EncryptionUnknown" });
  t.match(await wait(t, [200, crdWith()], failed, given), { code: 1, said: /failed: .*EncryptionUnknown/ });
  const theirs = ended({ type: "Succeeded" });
  const said = /incomplete: .*another migrator than ksvm may have written\. .* ksvm reencrypt widgets\.example\.com/;
  t.match(await wait(t, [200, crdWith()], theirs, given), { code: 3, said });
});
