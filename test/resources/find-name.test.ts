import tap from "tap";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { findName } from "../../src/resources/find-name.ts";

function groupOf(name: string) {
  return { name, preferredVersion: { version: "v1" }, versions: [{ version: "v1" }] };
}

const ANSWERS: Readonly<Record<string, unknown>> = {
  "/apis": { kind: "APIGroupList", groups: [groupOf("down.example.com")] },
  "/api/v1": {
    kind: "APIResourceList",
    groupVersion: "v1",
    resources: [
      { name: "secrets", singularName: "secret", kind: "Secret", namespaced: true, verbs: ["list", "patch"] },
    ],
  },
};

function answer({ method, path }: ApiRequest): Promise<unknown> {
  const body = ANSWERS[path];
  if (body !== undefined) {
    return Promise.resolve({ body });
  }
  const name = path.slice(path.lastIndexOf("/") + 1);
  const [status, reason] = path === "/apis/down.example.com/v1" ? [503, "ServiceUnavailable"] : [404, "NotFound"];
  const said = { kind: "Status", message: `${name}: ${reason}`, reason, details: { name } };
  return Promise.reject(new ApiError(`${method} ${path}`, status, { answer: said as never }));
}

/** An API server that has no CRDs, and one group whose discovery answers 503: a real one drops the group after a while. */
const client = new ApiClient({ request: answer } as unknown as Transport);

const cases: readonly [given: string, code: string][] = [
  ["nothings", "ResourceAmbiguous"],
  ["nothings.v1.down.example.com", "ResourceAmbiguous"],
  ["nothings.other.example.com", "ResourceNotFound"],
];
for (const [given, code] of cases) {
  await tap.test(`findName() says of ${given} where discovery of a group is down: ${code}`, async (t) => {
    await t.rejects(findName(client, given), { code });
  });
}
