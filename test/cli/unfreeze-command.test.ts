import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import tap, { type Test } from "tap";

import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { UNFREEZE_COMMAND } from "../../src/cli/commands/unfreeze-command.ts";
import { crdWith } from "../api/crd-with.ts";
import { groupList, kubeconfigFor, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const RUNNING = {
  metadata: { name: "bump", uid: "u", resourceVersion: "1" },
  spec: { resource: { group: "example.com", resource: "widgets" } },
};
const CONDITIONS = [{ type: STORAGE_MIGRATING_CONDITION, status: "True" }];

async function unfreeze(t: Test, conditions: readonly object[]): Promise<string> {
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
      ...crdWith(),
      status: { storedVersions: ["v2"], conditions },
    },
  };
  const server = await startServer(t, ({ path }, response) => {
    const name = path.split("/").at(-1) ?? "";
    return path in answers
      ? sendJson(response, 200, answers[path])
      : sendStatus(response, 404, { reason: "NotFound", details: { name } });
  });
  const stdout = new PassThrough();
  const said = text(stdout);
  const kubeconfig = join(t.testdir({ config: kubeconfigFor(server.url) }), "config");
  const io = { stdout, stderr: new PassThrough(), signal: new AbortController().signal };
  await UNFREEZE_COMMAND.run(io, { flags: { kubeconfig }, operands: ["widgets.example.com"] }, () => undefined);
  stdout.end();
  return said;
}

await tap.test("ksvm unfreeze calls no CRD unfrozen that the condition of a running migration freezes", async (t) => {
  t.match(
    await unfreeze(t, CONDITIONS),
    /^"widgets\.example\.com" is frozen by its condition StorageMigrating alone: nothing to do\nnote: .*"bump" is not finished/,
  );
  t.equal(await unfreeze(t, []), '"widgets.example.com" is not frozen: nothing to do\n');
});
