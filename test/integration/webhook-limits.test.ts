import https from "node:https";
import type { AddressInfo } from "node:net";
import t from "tap";
import { MIGRATING_ANNOTATION, WEBHOOK_NAME } from "../../src/api/names.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CRDS, MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { isDenialBy, WEBHOOK_GUARD } from "../../src/freeze/guard.ts";
import { buildWebhookApp, DEFAULT_BODY_LIMIT, VALIDATE_PATH } from "../../src/webhook/app.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { issueServing } from "../webhook/issue-serving.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";

const VERSIONS = ["v1alpha1", "v1", "v2alpha1", "v2", "v3"];
const MIB = 1024 * 1024;

const cluster = await Cluster.start(t);
const { api } = cluster;
const { pair, caBundle } = await issueServing();

// The webhook's own app, behind a server that measures what API servers send.
const app = buildWebhookApp();
t.teardown(() => app.close());
const sizes: number[] = [];
const server = https.createServer({ cert: pair.certPem, key: pair.keyPem }, (request, response) => {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const payload = Buffer.concat(chunks);
    sizes.push(payload.length);
    void app
      .inject({ method: "POST", url: VALIDATE_PATH, headers: { "content-type": "application/json" }, payload })
      .then((answer) =>
        response.writeHead(answer.statusCode, { "content-type": "application/json" }).end(answer.payload),
      );
  });
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
t.teardown(() => {
  server.closeAllConnections();
  server.close();
});
const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}${VALIDATE_PATH}`;
await api.create(WEBHOOK_CONFIGURATIONS, {
  ...webhookConfigurationOf({ clientConfig: { url, caBundle }, timeoutSeconds: 30 }),
});

/** The schema of `spec` with descriptions of so many bytes in all. */
function schemaOf(bytes: number, text: string): object {
  const description = text.repeat(Math.ceil(1_000 / text.length)).slice(0, 1_000);
  const count = Math.floor(bytes / 1_050);
  const fields = Array.from(
    { length: count },
    (_, index) => [`field${index}`, { type: "string", description }] as const,
  );
  return { type: "object", properties: Object.fromEntries(fields) };
}

/** Changes the storage version to v1, in the same update as the schemas of all five versions. */
async function flip(kind: TestKind, specSchema: object): Promise<{ readonly said: string; readonly sent: number }> {
  const body = { spec: { versions: versionsOf({ storage: "v1", versions: VERSIONS, specSchema }) } };
  try {
    await api.patch(CRDS, kind, { type: MERGE_PATCH, body });
    return { said: "accepted", sent: 0 };
  } catch (error) {
    return { said: error instanceof ApiError ? error.said : String(error), sent: JSON.stringify(body).length };
  }
}

await t.test("reviews of a five-version CRD near the API server's limits are within the webhook's", async (t) => {
  const kind = new TestKind("five");
  const prose = "What this is for: values < 10 mean seconds, others minutes; see <https://example.com/a?b=c&d=e>. ";
  // etcd takes 1.5 MiB, of the CRD as it is stored.
  const stored = schemaOf((1.15 * MIB) / VERSIONS.length, prose);
  await cluster.createCrd(kind, { storage: "v1alpha1", versions: VERSIONS, specSchema: stored });
  const body = { metadata: { annotations: { [MIGRATING_ANNOTATION]: "true" } } };
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body });
  await eventually(async () => isDenialBy(WEBHOOK_GUARD, kind.name, (await flip(kind, stored)).said), "it is guarded");
  const atEtcdLimit = sizes.at(-1) ?? 0;
  // The API server takes 3 MiB of a request.
  const large = await flip(kind, schemaOf((2.9 * MIB) / VERSIONS.length, prose));
  t.ok(isDenialBy(WEBHOOK_GUARD, kind.name, large.said), large.said);
  const largest = sizes.at(-1) ?? 0;
  t.comment(
    `a request of ${large.sent} bytes makes a review of ${largest} bytes; both objects near etcd's limit: ${atEtcdLimit}`,
  );
  t.ok(large.sent > 2.7 * MIB && large.sent < 3 * MIB, `${large.sent} bytes were sent`);
  t.ok(largest > 4 * MIB && largest < DEFAULT_BODY_LIMIT / 2, `${largest} bytes are half the limit at the most`);

  // Each of these characters comes as six.
  const escaped = await flip(kind, schemaOf((2.9 * MIB) / VERSIONS.length, "<&>"));
  t.comment(
    `all of it escaped, a request of ${escaped.sent} bytes makes a review of ${sizes.at(-1)} bytes: ${escaped.said}`,
  );
  t.ok((sizes.at(-1) ?? 0) > DEFAULT_BODY_LIMIT);
  t.match(escaped.said, `admission webhook "${WEBHOOK_NAME}" denied the request: Cannot review this update`);
  t.match(escaped.said, /reads 16777216; .*"ksvm unfreeze NAME"/);
});
