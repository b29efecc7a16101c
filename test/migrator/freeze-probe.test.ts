import * as fc from "fast-check";
import tap from "tap";

import { type CustomResourceDefinition, storageVersionsOf } from "../../src/api/crd.ts";
import { labelChangePatch, PROBE_LABEL, PROBE_VERSION, storageChangePatch } from "../../src/migrator/freeze-probe.ts";
import { crdWith } from "../api/crd-fixture.ts";

interface Patch {
  readonly metadata: { readonly resourceVersion: string };
  readonly spec: Pick<CustomResourceDefinition["spec"], "versions">;
}

await tap.test("storageChangePatch() moves the storage version to another one when there is one", (t) => {
  t.same(storageChangePatch(crdWith({ versions: ["v1", "v2+", "v3-"] })), {
    metadata: { resourceVersion: "100" },
    spec: {
      versions: [
        { name: "v1", served: true, storage: true },
        { name: "v2", served: true, storage: false },
        { name: "v3", served: false, storage: false },
      ],
    },
  });
  t.end();
});

await tap.test("storageChangePatch() adds a version that is not served when there is only one", (t) => {
  const crd = crdWith({ versions: ["v1+"] });
  const versions = crd.spec.versions.map((version) => ({
    ...version,
    schema: { openAPIV3Schema: { type: "object" } },
  }));
  t.same(storageChangePatch({ ...crd, spec: { ...crd.spec, versions } }), {
    metadata: { resourceVersion: "100" },
    spec: {
      versions: [
        { name: "v1", served: true, storage: false, schema: { openAPIV3Schema: { type: "object" } } },
        { name: PROBE_VERSION, served: false, storage: true, schema: { openAPIV3Schema: { type: "object" } } },
      ],
    },
  });
  t.end();
});

await tap.test("storageChangePatch() always has one storage version, which is another", (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 5 }), fc.nat(), (count, choice) => {
      const storage = choice % count;
      const versions = Array.from({ length: count }, (_, index) => `v${index}${index === storage ? "+" : ""}`);
      const crd = crdWith({ versions });
      const changed = { ...crd, spec: { ...crd.spec, ...(storageChangePatch(crd) as Patch).spec } };
      const [after, ...others] = storageVersionsOf(changed);
      return others.length === 0 && after !== undefined && after !== storageVersionsOf(crd)[0];
    }),
  );
  t.end();
});

await tap.test("labelChangePatch() changes a label and nothing else, at the resourceVersion that was read", (t) => {
  t.same(labelChangePatch(crdWith()), { metadata: { resourceVersion: "100", labels: { [PROBE_LABEL]: "true" } } });
  t.end();
});
