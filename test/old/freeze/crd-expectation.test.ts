import tap from "tap";

import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../../src/api/names.ts";
import { formatOwner } from "../../../src/api/owner.ts";
import { brokenExpectation, brokenSchemas, type CrdExpectation } from "../../../src/old/freeze/crd-expectation.ts";
import { StartAgain } from "../../../src/old/retry/start-again.ts";
import { crdLacking } from "../../api/crd-lacking.ts";
import { type CrdTraits, crdWith } from "../../api/crd-with.ts";

const OWNER = formatOwner({ lease: "kube-system/a", identity: "host_1", since: "2026-01-01T00:00:00.000Z" });
const FROZEN = { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: OWNER };
const EXPECTED: CrdExpectation = {
  name: "widgets.example.com",
  uid: "uid-1",
  storageVersion: "v2",
  requestVersion: "v2",
  conversion: webhookAt({}),
  owner: OWNER,
};

/** A conversion by webhook, with another client config laid over its own. */
function webhookAt(config: object) {
  const service = { name: "converter", namespace: "system", path: "/convert", port: 443 };
  const clientConfig = { service, ...config };
  return { strategy: "Webhook", webhook: { clientConfig, conversionReviewVersions: ["v1"] } };
}

function frozen(traits: CrdTraits = {}): CustomResourceDefinition {
  return crdWith({
    conversion: webhookAt({ caBundle: "b2xk" }),
    ...traits,
    metadata: { annotations: FROZEN, ...traits.metadata },
  });
}

const broken: readonly [name: string, crd: CustomResourceDefinition, code: string, words: RegExp][] = [
  ["it was created again", frozen({ metadata: { uid: "uid-2" } }), "CrdReplaced", /deleted and created again/],
  [
    "it is being deleted",
    frozen({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }),
    "CrdReplaced",
    /being deleted/,
  ],
  ["the freeze was lifted", frozen({ metadata: { annotations: {} } }), "FreezeLifted", /lifted the freeze/],
  [
    "the freeze was lifted and the owner left",
    frozen({ metadata: { annotations: { [OWNER_ANNOTATION]: OWNER } } }),
    "FreezeLifted",
    /nothing was pruned/,
  ],
  [
    "the owner is missing",
    frozen({ metadata: { annotations: { [MIGRATING_ANNOTATION]: "true" } } }),
    "OwnershipLost",
    /another client removed annotation ksvm\.sigs\.k8s\.io\/migration-owner/,
  ],
  [
    "another run owns it",
    frozen({ metadata: { annotations: { ...FROZEN, [OWNER_ANNOTATION]: OWNER.replace("host_1", "host_2") } } }),
    "OwnershipLost",
    /another run/,
  ],
  ["the storage version is another", frozen({ versions: ["v1+", "v2"] }), "StorageVersionChanged", /"v2" to "v1"/],
  ["there is none", frozen({ versions: ["v1", "v2"] }), "StorageVersionChanged", /"v2" to ""/],
  ["there are two", frozen({ versions: ["v1+", "v2+"] }), "StorageVersionChanged", /"v2" to "v1,v2"/],
  ["the request version is unserved", frozen({ versions: ["v1", "v2+-"] }), "VersionNotServed", /"v2"/],
  ["nothing converts any more", frozen({ conversion: { strategy: "None" } }), "ConversionChanged", /convert objects/],
  ["there is no conversion at all", frozen({ conversion: undefined }), "ConversionChanged", /run again/],
  [
    "another webhook converts",
    frozen({ conversion: webhookAt({ service: { name: "other", namespace: "system" } }) }),
    "ConversionChanged",
    /nothing was pruned/,
  ],
];

for (const [name, crd, code, words] of broken) {
  await tap.test(`brokenExpectation() is ${code} when ${name}`, (t) => {
    const error = brokenExpectation(EXPECTED, crd);
    t.equal(error?.code, code);
    t.match(error?.message, words);
    t.match(error?.message, /^Cannot continue with "widgets.example.com": /);
    t.end();
  });
}

const harmless: readonly [name: string, crd: CustomResourceDefinition][] = [
  ["nothing changed", frozen()],
  ["a label was set", frozen({ metadata: { labels: { a: "b" }, generation: 9, resourceVersion: "999" } })],
  ["another annotation was set", frozen({ metadata: { annotations: { ...FROZEN, a: "b" } } })],
  ["the freeze has another value", frozen({ metadata: { annotations: { ...FROZEN, [MIGRATING_ANNOTATION]: "" } } })],
  ["a version was added", frozen({ versions: ["v1", "v2+", "v3"] })],
  ["another version is unserved or gone", frozen({ versions: ["v1-", "v2+"] })],
  ["storedVersions was pruned by another client", frozen({ storedVersions: ["v2"] })],
  ["the webhook has another caBundle", frozen({ conversion: webhookAt({ caBundle: "bmV3" }) })],
  ["the webhook has no caBundle", frozen({ conversion: webhookAt({}) })],
];

await tap.test(
  "brokenExpectation() has the run begin again where the conversion changed: nothing of it is lost",
  (t) => {
    const error = brokenExpectation(EXPECTED, frozen({ conversion: { strategy: "None" } }));
    t.ok(error instanceof StartAgain);
    const none = { ...EXPECTED, conversion: { strategy: "None" } };
    t.equal(brokenExpectation(none, frozen({ conversion: undefined })), undefined, "None is the default");
    t.ok(brokenExpectation(none, frozen()) instanceof StartAgain, "a webhook converts from now on");
    t.notOk(brokenExpectation(EXPECTED, frozen({ versions: ["v1+", "v2"] })) instanceof StartAgain);
    t.end();
  },
);

await tap.test(
  "brokenSchemas() has the run begin again where an API server that is behind would change objects",
  (t) => {
    const withSchema = (properties: object, more: object = {}): CustomResourceDefinition => {
      const crd = frozen({ versions: ["v1", "v2+"] });
      const schema = { openAPIV3Schema: { type: "object", properties: { spec: { type: "object", properties } } } };
      const versions = crd.spec.versions.map((version) => ({ ...version, schema, ...more }));
      return { ...crd, spec: { ...crd.spec, versions } };
    };
    const [one, two] = [{ a: { type: "string" } }, { a: { type: "string" }, b: { type: "string" } }];
    const error = brokenSchemas(withSchema(one), withSchema(two));
    t.ok(error instanceof StartAgain);
    t.match(error, {
      code: "NotConverged",
      message: /its schema changed,.*: spec\.b is new; nothing was pruned, run again$/,
    });
    t.equal(brokenSchemas(withSchema(two), withSchema(one)), undefined, "one that goes is lost by any write");
    const edits = { deprecated: true, additionalPrinterColumns: [] };
    t.equal(brokenSchemas(withSchema(one), withSchema({ a: { type: "string", maxLength: 5 } }, edits)), undefined);
    t.equal(brokenSchemas(frozen(), frozen({ versions: ["v1", "v2+", "v3"] })), undefined, "a new version");
    const defaulted = { a: { type: "string", default: "x" } };
    t.match(brokenSchemas(withSchema(defaulted), withSchema(one)), {
      message: /the default of spec\.a is another one or gone/,
    });
    t.equal(
      brokenSchemas(withSchema(one), withSchema(defaulted)),
      undefined,
      "a new one is what each API server writes later",
    );
    const kept = frozen();
    const keepsMore = { ...kept, spec: { ...kept.spec, preserveUnknownFields: true } };
    t.ok(brokenSchemas(kept, keepsMore) instanceof StartAgain);
    t.equal(brokenSchemas(keepsMore, keepsMore), undefined);
    t.end();
  },
);

for (const [name, crd] of harmless) {
  await tap.test(`brokenExpectation() is undefined when ${name}`, (t) => {
    t.equal(brokenExpectation(EXPECTED, crd), undefined);
    t.end();
  });
}

await tap.test(
  "brokenExpectation() is that the version of the requests lacks fields of the storage version",
  async (t) => {
    const expected = { ...EXPECTED, requestVersion: "v1", conversion: { strategy: "None" } };
    const traits: CrdTraits = { metadata: { annotations: FROZEN } };
    t.equal(brokenExpectation(expected, crdLacking(0, traits)), undefined);
    const broken = { code: "ResourceNotMigratable", message: /version "v1" lacks spec\.f0/ };
    t.match(brokenExpectation(expected, crdLacking(1, traits)), broken);
  },
);
