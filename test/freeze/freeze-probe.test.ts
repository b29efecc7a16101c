import * as fc from "fast-check";
import tap from "tap";

import { labelChangePatch, PROBE_LABEL, PROBE_VERSION, storageChangePatch } from "../../src/freeze/freeze-probe.ts";
import { crdWith } from "../api/crd-with.ts";

const AT_RESOURCE_VERSION = { op: "add", path: "/metadata/resourceVersion", value: "100" };

await tap.test("storageChangePatch() moves the storage version to another one when there is one", (t) => {
  t.same(storageChangePatch(crdWith({ versions: ["v1", "v2+", "v3-"] })), [
    AT_RESOURCE_VERSION,
    { op: "add", path: "/spec/versions/1/storage", value: false },
    { op: "add", path: "/spec/versions/0/storage", value: true },
  ]);
  t.end();
});

await tap.test("storageChangePatch() adds a version that is not served when there is only one", (t) => {
  t.same(storageChangePatch(crdWith({ versions: ["v1+"] })), [
    AT_RESOURCE_VERSION,
    { op: "copy", from: "/spec/versions/0", path: "/spec/versions/1" },
    { op: "add", path: "/spec/versions/1/name", value: PROBE_VERSION },
    { op: "add", path: "/spec/versions/1/served", value: false },
    { op: "add", path: "/spec/versions/0/storage", value: false },
    { op: "add", path: "/spec/versions/1/storage", value: true },
  ]);
  t.end();
});

await tap.test("storageChangePatch() takes storage from the one version that has it, and gives it to another", (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 5 }), fc.nat(), (count, choice) => {
      const storage = choice % count;
      const versions = Array.from({ length: count }, (_, index) => `v${index}${index === storage ? "+" : ""}`);
      const [taken, given, ...more] = storageChangePatch(crdWith({ versions })).filter(({ path }) =>
        path.endsWith("/storage"),
      );
      t.same(taken, { op: "add", path: `/spec/versions/${storage}/storage`, value: false });
      t.match(given, { op: "add", value: true });
      return given?.path !== taken?.path && more.length === 0;
    }),
  );
  t.end();
});

await tap.test("storageChangePatch() does not grow with the schemas of the CRD", (t) => {
  const crd = crdWith({ versions: ["v1", "v2+"] });
  const schema = { openAPIV3Schema: { type: "object", description: "x".repeat(100_000) } };
  const versions = crd.spec.versions.map((version) => ({ ...version, schema }));
  const large = { ...crd, spec: { ...crd.spec, versions } };
  t.same(storageChangePatch(large), storageChangePatch(crd));
  t.end();
});

await tap.test("labelChangePatch() adds a label and keeps the others, at the resourceVersion that was read", (t) => {
  const patch = labelChangePatch(crdWith({ metadata: { labels: { app: "widgets" } } }));
  const value = { app: "widgets", [PROBE_LABEL]: "true" };
  t.same(patch, [AT_RESOURCE_VERSION, { op: "add", path: "/metadata/labels", value }]);
  t.end();
});
