import tap from "tap";
import type { ModelRequest } from "../model/types.ts";
import { requestKindOf } from "./request-kinds.ts";
import { RequestTriggers } from "./request-triggers.ts";

const GROUP = "sim.example.com";
const CRD = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.${GROUP}`;
const POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const RESOURCES = [
  { group: GROUP, resource: "widgets" },
  { group: "", resource: "secrets" },
  { group: "apps", resource: "deployments" },
];
const OBJECTS = `/apis/${GROUP}/v1/widgets`;

function requestOf(method: string, path: string, body: unknown = "", user = "ksvm-0"): ModelRequest {
  const [pathname = "", query] = path.split("?");
  const text = body === "" ? "" : JSON.stringify(body);
  return { method, path: pathname, query: new URLSearchParams(query), headers: {}, body: text, user };
}

const annotated = (value: string | null) => ({ metadata: { annotations: { "ksvm.sigs.k8s.io/migrating": value } } });

await tap.test("requestKindOf() tells what a request is for", async (t) => {
  const lease = `${LEASES}/ksvm-migrate.widgets.${GROUP}`;
  const checkpoint = { metadata: { annotations: { "ksvm.sigs.k8s.io/checkpoint": "{}" } }, spec: {} };
  for (const [request, kind] of [
    [requestOf("PATCH", CRD, annotated("true")), "freeze"],
    [requestOf("PATCH", CRD, annotated(null)), "unfreeze"],
    [requestOf("PATCH", `${CRD}?dryRun=All`, []), "proof"],
    [requestOf("PATCH", `${CRD}/status`, {}), "prune"],
    [requestOf("GET", CRD), "readCrd"],
    [requestOf("POST", POLICIES, {}), "putGuard"],
    [requestOf("DELETE", `${POLICIES}/a`), "removeGuard"],
    [requestOf("GET", `${POLICIES}/a`), undefined],
    [requestOf("POST", LEASES, { metadata: { name: "ksvm-migrate.a" } }), "takeLease"],
    [requestOf("PATCH", lease, { spec: { holderIdentity: "a" } }), "takeLease"],
    [requestOf("PATCH", lease, { spec: { renewTime: "" } }), "renewLease"],
    [requestOf("PATCH", lease, { spec: { holderIdentity: null } }), undefined],
    [requestOf("PATCH", lease, checkpoint), "checkpoint"],
    [requestOf("GET", `/apis/${GROUP}/v1`), "discovery"],
    [requestOf("GET", `${OBJECTS}?limit=7`), "firstPage"],
    [requestOf("GET", `${OBJECTS}?limit=7&continue=a`), "nextPage"],
    [requestOf("GET", `${OBJECTS}?fieldSelector=metadata.name%3Da`), "look"],
    [requestOf("PATCH", `${OBJECTS}/a`), "write"],
    [requestOf("GET", "/version"), "version"],
    [requestOf("GET", "/apis"), undefined],
    [requestOf("GET", "/api/v1"), "discovery"],
    [requestOf("GET", "/apis/apps/v1"), "discovery"],
    [requestOf("GET", "/apis/storage.k8s.io/v1"), undefined],
    [requestOf("GET", "/api/v1/secrets?limit=7"), "firstPage"],
    [requestOf("PATCH", "/api/v1/namespaces/default/secrets/a"), "write"],
    [requestOf("PATCH", "/apis/apps/v1/namespaces/default/deployments/a"), "write"],
    [requestOf("GET", "/api/v1/namespaces"), undefined],
    [requestOf("PATCH", "/api/v1/namespaces/default/events/a"), undefined],
  ] as const) {
    t.equal(requestKindOf(request, RESOURCES), kind, `${request.method} ${request.path}`);
  }
});

await tap.test(
  "something happens once, when ksvm sends its second request of a kind, and the request is held",
  async (t) => {
    const happened: (number | string)[] = [];
    const triggers = new RequestTriggers(RESOURCES, (ms, run) => {
      happened.push(ms);
      run();
    });
    triggers.when({ request: "version", nth: 2, afterMs: 5, holdMs: 400 }, () => happened.push("now"));
    triggers.when({ request: "prune", nth: 1 }, () => happened.push("pruned"));
    const version = requestOf("GET", "/version");
    t.equal(triggers.sent(version), 0);
    t.equal(triggers.sent(requestOf("GET", "/version", "", "user")), 0, "users do not count");
    t.equal(triggers.sent(version), 400);
    t.equal(triggers.sent(version), 0);
    triggers.disarm();
    t.equal(triggers.sent(requestOf("PATCH", `${CRD}/status`, {})), 0);
    t.same(happened, [5, "now"]);
  },
);
