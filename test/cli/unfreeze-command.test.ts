import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import tap, { type Test } from "tap";

import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { formatOwner } from "../../src/api/owner.ts";
import { UNFREEZE_COMMAND } from "../../src/cli/commands/unfreeze-command.ts";
import { crdWith } from "../api/crd-with.ts";
import { groupList, kubeconfigFor, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const RUNNING = {
  metadata: { name: "bump", uid: "u", resourceVersion: "1" },
  spec: { resource: { group: "example.com", resource: "widgets" } },
};
const CONDITIONS = [{ type: STORAGE_MIGRATING_CONDITION, status: "True" }];

const POLICY = "ksvm-freeze.widgets.example.com";

/** Annotations of the CRD, and of its policy where it has one. */
interface Owners {
  readonly crd?: Readonly<Record<string, string>>;
  readonly policy?: Readonly<Record<string, string>>;
}

interface Said {
  readonly stdout: string;
  readonly stderr: string;
}

async function unfreeze(t: Test, conditions: readonly object[], owners: Owners = {}): Promise<Said> {
  // A stand-in: test/integration/unfreeze.test.ts asks a real API server.
  const answers: Readonly<Record<string, unknown>> = {
    "/version": { gitVersion: "v1.36.3" },
    "/apis": groupList("storagemigration.k8s.io/v1beta1"),
    "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations": {
      kind: "List",
      metadata: { resourceVersion: "1" },
      items: [RUNNING],
    },
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com": {
      ...crdWith({ metadata: { annotations: owners.crd ?? {} } }),
      status: { storedVersions: ["v2"], conditions },
    },
    ...(owners.policy && {
      [`/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/${POLICY}`]: {
        metadata: { name: POLICY, uid: "p", resourceVersion: "1", annotations: owners.policy },
      },
    }),
  };
  const server = await startServer(t, ({ path }, response) => {
    const name = path.split("/").at(-1) ?? "";
    return path in answers
      ? sendJson(response, 200, answers[path])
      : sendStatus(response, 404, { reason: "NotFound", details: { name } });
  });
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const said = Promise.all([text(stdout), text(stderr)]);
  const kubeconfig = join(t.testdir({ config: kubeconfigFor(server.url) }), "config");
  const io = { stdout, stderr, signal: new AbortController().signal };
  const given = { flags: { kubeconfig, yes: true }, operands: ["widgets.example.com"] };
  await UNFREEZE_COMMAND.run(io, given, () => undefined);
  stdout.end();
  stderr.end();
  const [out, err] = await said;
  return { stdout: out, stderr: err };
}

await tap.test("ksvm unfreeze calls no CRD unfrozen that the condition of a running migration freezes", async (t) => {
  t.match(
    (await unfreeze(t, CONDITIONS)).stdout,
    /^"widgets\.example\.com" is frozen by its condition StorageMigrating alone: nothing to do\nnote: .*"bump" is not finished/,
  );
  t.equal((await unfreeze(t, [])).stdout, '"widgets.example.com" is not frozen: nothing to do\n');
});

function ownedBy(identity: string): Readonly<Record<string, string>> {
  const since = "2026-01-01T00:00:00.000Z";
  return { [OWNER_ANNOTATION]: formatOwner({ lease: "kube-system/l", identity, since }) };
}

await tap.test("ksvm unfreeze tells the policy of the run that froze a CRD from that of another", async (t) => {
  const crd = { [MIGRATING_ANNOTATION]: "true", ...ownedBy("a") };
  const policyTold = async (owners: Owners): Promise<string | undefined> =>
    (await unfreeze(t, [], owners)).stderr.split("\n").find((line) => line.startsWith("ValidatingAdmissionPolicy"));
  t.equal(
    await policyTold({ crd, policy: ownedBy("a") }),
    `ValidatingAdmissionPolicy "${POLICY}" of that run guards the freeze.`,
  );
  const ofB = `ValidatingAdmissionPolicy "${POLICY}" is there, of b (Lease "kube-system/l") since 2026-01-01T00:00:00.000Z, which has not frozen "widgets.example.com".`;
  t.equal(await policyTold({ crd, policy: ownedBy("b") }), ofB);
  t.equal(await policyTold({ policy: ownedBy("b") }), ofB, "no freeze at all");
  t.match(await policyTold({ policy: {} }), /is there, of something other than ksvm, which has not frozen/);
  t.equal(await policyTold({ crd }), undefined);
});
