import { execFile } from "node:child_process";
import type { ServerResponse } from "node:http";
import { promisify } from "node:util";
import tap from "tap";
import { groupList, kubeconfigFor, resourceList, sendJson, sendStatus, startServer } from "./local-server.ts";

const OBJECTS = 40;
/** Megabytes that the heap of each reader may have; all that these objects have takes several hundred. */
const HEAP_MIB = 48;

/** A megabyte of fields, as managedFields or a schema may have them. */
const FIELDS = `{${Array.from({ length: 30_000 }, (_, at) => `"f:field${at}":{"f:value":{}}`).join()}}`;

const SPECS: Readonly<Record<string, object>> = {
  customresourcedefinitions: {
    group: "example.com",
    names: { plural: "widgets", kind: "Widget" },
    versions: [{ name: "v1", served: true, storage: true }],
  },
  deployments: { replicas: 1, template: { spec: { containers: [{ name: "migrator", image: "migrator" }] } } },
  storageversions: {},
};

/** Writes a list of large objects as an API server does, one after the other. */
function sendLarge(response: ServerResponse, resource: string): void {
  response.writeHead(200, { "content-type": "application/json" });
  response.write('{"kind":"List","metadata":{"resourceVersion":"1"},"items":[');
  for (let at = 0; at < OBJECTS; at++) {
    const managedFields = `[{"manager":"m","fieldsV1":${FIELDS}}]`;
    const metadata = `{"name":"core.x${at}","uid":"u${at}","resourceVersion":"1","managedFields":${managedFields}}`;
    const rest = `"spec":${JSON.stringify(SPECS[resource])},"status":{"storedVersions":["v1"],"commonEncodingVersion":"v1"}`;
    response.write(`${at === 0 ? "" : ","}{"metadata":${metadata},${rest}}`);
  }
  response.end("]}");
}

/** Each is the end of a script that has `client`, and tells how many objects it found. */
const READERS: Readonly<Record<string, { readonly module: string; readonly found: string }>> = {
  customresourcedefinitions: {
    module: "src/plan/inventory.ts",
    found: "(await module.planAll(client, () => undefined)).entries.length",
  },
  deployments: {
    module: "src/in-tree/other-migrators.ts",
    found: '(await module.findOtherMigrators(client, "ns").then(() => read))',
  },
  storageversions: {
    module: "src/trigger/observer.ts",
    found: `await new module.Observer({
      client, clock: systemClock, excludedGroups: [], findApiServers: async () => ({ mode: "each", clients: [client] }),
    }).everything(new AbortController().signal).then(() => read)`,
  },
};

/** Reads a list in a process of its own, with a heap of so many megabytes. */
async function readIn(heapMib: number, script: string): Promise<string> {
  // tap has every Node it starts, by NODE_OPTIONS, load modules of its own that double the memory with source maps.
  const node = ["-u", "NODE_OPTIONS", process.execPath, `--max-old-space-size=${heapMib}`];
  return (await promisify(execFile)("env", [...node, "--input-type=module", "--eval", script])).stdout;
}

for (const [resource, { found, module }] of Object.entries(READERS)) {
  await tap.test(`a list of ${resource} of a megabyte each is projected while it is read`, async (t) => {
    let sent = 0;
    const server = await startServer(t, ({ headers, path }, response) => {
      const isWhole = !String(headers.accept).includes("PartialObjectMetadata");
      if (path.endsWith(`/${resource}`) && isWhole) {
        sent++;
        return sendLarge(response, resource);
      }
      if (path === "/api") return sendJson(response, 200, { kind: "APIVersions", versions: [] });
      if (path === "/apis") return sendJson(response, 200, groupList("apps/v1"));
      if (path === "/apis/apps/v1") return sendJson(response, 200, resourceList("apps/v1"));
      if (/\/(leases|customresourcedefinitions)$/.test(path)) {
        return sendJson(response, 200, { kind: "List", metadata: { resourceVersion: "1" }, items: [] });
      }
      return sendStatus(response, 404, { reason: "NotFound", message: "404 page not found" });
    });
    const root = new URL("../../", import.meta.url);
    const script = `
      const root = ${JSON.stringify(root.href)};
      const { systemClock } = await import(root + "src/clock.ts");
      const { ApiClient } = await import(root + "src/kube/client.ts");
      const { Transport } = await import(root + "src/kube/transport.ts");
      const { KubeConfig } = await import("@kubernetes/client-node");
      const module = await import(root + ${JSON.stringify(module)});
      const config = new KubeConfig();
      config.loadFromString(${JSON.stringify(kubeconfigFor(server.url))});
      const client = new ApiClient(new Transport(config));
      const read = ${OBJECTS};
      console.log(${found});
      process.exit();
    `;
    t.equal((await readIn(HEAP_MIB, script)).trim(), String(OBJECTS));
    t.equal(sent, 1, "it was asked for whole objects, on one page");
  });
}
