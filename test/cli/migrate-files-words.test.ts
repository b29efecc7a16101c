import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import tap from "tap";

import { MIGRATE_COMMAND } from "../../src/cli/commands/migrate-command.ts";
import { crdWith } from "../api/crd-with.ts";
import { groupList, kubeconfigFor, sendJson, sendStatus, startServer } from "../kube/local-server.ts";
import { fileWith } from "../plan/check-situation.ts";

const CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NO_OBJECTS = { kind: "PartialObjectMetadataList", metadata: { resourceVersion: "1" }, items: [] };

await tap.test("ksvm migrate -f claims no more of a file that drops a version than storedVersions says", async (t) => {
  // A stand-in: the test is about the words.
  const answers: Readonly<Record<string, unknown>> = {
    "/version": { gitVersion: "v1.36.3" },
    "/apis": groupList("apiextensions.k8s.io/v1"),
    [`${CRDS}/widgets.example.com`]: crdWith({ storedVersions: ["v2"] }),
    "/apis/example.com/v2/widgets": NO_OBJECTS,
  };
  const server = await startServer(t, ({ path }, response) => {
    const name = path.split("/").at(-1) ?? "";
    return path in answers
      ? sendJson(response, 200, answers[path])
      : sendStatus(response, 404, { reason: "NotFound", details: { name } });
  });
  const dir = t.testdir({
    config: kubeconfigFor(server.url),
    "crd.json": JSON.stringify(fileWith(["v2+"]).object),
  });
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const said = Promise.all([text(stdout), text(stderr)]);
  const io = { stdout, stderr, signal: new AbortController().signal };
  const flags = { kubeconfig: join(dir, "config"), filename: [join(dir, "crd.json")] };
  t.equal(await MIGRATE_COMMAND.run(io, { flags, operands: [] }, () => undefined), 0);
  stdout.end();
  stderr.end();
  const all = (await said).join("");
  t.match(all, /can be applied now: storedVersions lists no version that it drops/);
  t.notMatch(all, /no object is stored/);
});
