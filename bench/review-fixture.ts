import { MIGRATING, OWNER as OWNER_ANNOTATION } from "../src/freeze/rule.ts";

const OWNER = { lease: "kube-system/ksvm-migrate.gadgets", identity: "host-a1", since: "2026-01-01T00:00:00Z" };

const WORDS = (
  "address affinity allow annotation backend capacity certificate cluster condition container controller default " +
  "deployment duration endpoint external field filter grace header health host identity image interval label limit " +
  "listener memory metric minimum mode namespace network node object operator owner path period policy port priority " +
  "probe protocol queue reference replica request resource retention retry role route rule scrape secret selector " +
  "service session shard source state storage strategy target template threshold timeout token topology traffic " +
  "update upstream user value version volume weight window zone"
).split(" ");

/** Numbers that look random and are the same in every run: xorshift32. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

/**
 * The review of a storage change of a frozen CRD, as an API server sends it, of about `bytes` bytes: two versions with
 * schemas of many described fields, as generators write them from Go types.
 */
export function reviewOfSize(bytes: number): Buffer {
  let fields = 0;
  let review = encode(fields);
  // A field takes some hundred bytes, four times.
  while (review.length < bytes) {
    fields += Math.max(1, Math.floor((bytes - review.length) / 1_200));
    review = encode(fields);
  }
  return review;
}

function encode(fields: number): Buffer {
  const [oldObject, object] = ["v1alpha1", "v1"].map((storage) => crd(storage, fields));
  const resource = { group: "apiextensions.k8s.io", version: "v1", resource: "customresourcedefinitions" };
  const kind = { group: "apiextensions.k8s.io", version: "v1", kind: "CustomResourceDefinition" };
  const userInfo = { username: "system:serviceaccount:operators:upgrader", groups: ["system:authenticated"] };
  const request = {
    uid: "705ab4f5-22f1-4c9a-9b43-c5ab5e0eb1ea",
    kind,
    resource,
    requestKind: kind,
    requestResource: resource,
    name: "gadgets.bench.example.com",
    operation: "UPDATE",
    userInfo,
    object,
    oldObject,
    dryRun: false,
    options: { kind: "PatchOptions", apiVersion: "meta.k8s.io/v1" },
  };
  return Buffer.from(JSON.stringify({ kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request }));
}

function crd(storage: string, fields: number): object {
  const managed = {
    fieldsV1: { "f:spec": { "f:group": {} } },
    time: "2026-01-01T00:00:00Z",
    manager: "kubectl",
    operation: "Update",
    apiVersion: "apiextensions.k8s.io/v1",
    fieldsType: "FieldsV1",
  };
  return {
    kind: "CustomResourceDefinition",
    apiVersion: "apiextensions.k8s.io/v1",
    metadata: {
      name: "gadgets.bench.example.com",
      uid: "0f4b7c0e-7a57-4f3e-8a0d-1f0c6a2f6f7e",
      resourceVersion: "1234567",
      generation: 3,
      creationTimestamp: "2026-01-01T00:00:00Z",
      annotations: { [MIGRATING]: "true", [OWNER_ANNOTATION]: JSON.stringify(OWNER) },
      ...(fields === 0 ? {} : { managedFields: [managed] }),
    },
    spec: {
      group: "bench.example.com",
      names: { plural: "gadgets", singular: "gadget", kind: "Gadget", listKind: "GadgetList" },
      scope: "Namespaced",
      versions: ["v1alpha1", "v1"].map((name, index) => ({
        name,
        served: true,
        storage: name === storage,
        schema: { openAPIV3Schema: fields === 0 ? { type: "object" } : schema(fields, numbers(index + 1)) },
      })),
      conversion: { strategy: "None" },
    },
    status: {
      conditions: [
        { type: "Established", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z", reason: "a", message: "" },
      ],
      acceptedNames: { plural: "gadgets", kind: "Gadget" },
      storedVersions: ["v1alpha1"],
    },
  };
}

/** An object with so many fields in it, at any depth. */
function schema(fields: number, next: (below: number) => number): object {
  const words = (count: number): string[] => Array.from({ length: count }, () => WORDS[next(WORDS.length)] ?? "");
  const description = (): string => `${words(4 + next(30)).join(" ")}.`;
  const properties: Record<string, object> = {};
  let left = fields;
  while (left > 0) {
    const inner = left > 12 && next(4) === 0 ? next(Math.min(left, 120)) : 0;
    const [first = "", ...others] = words(3);
    const name = first + others.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join("");
    properties[name] =
      inner > 0 ? schema(inner, next) : { description: description(), type: next(3) === 0 ? "integer" : "string" };
    left -= inner + 1;
  }
  return { description: description(), type: "object", properties };
}
