import tap from "tap";
import { crdResourceOf, droppingWrites, servedByCrd, writtenByCrd } from "../../src/resources/request-resource.ts";
import { crdLacking } from "../api/crd-lacking.ts";

await tap.test("writtenByCrd() refuses a version whose schema lacks fields, and says what helps", async (t) => {
  const crd = crdLacking(1);
  const message =
    'Cannot write objects of "widgets.example.com": its storage version "v2" is not served, and version "v1" lacks spec.f0, ' +
    'which each write would drop; set served: true on "v2" for as long as it takes, then run again';
  t.throws(() => writtenByCrd(crd), { code: "ResourceNotMigratable", message });
  t.match(crdResourceOf(crd), { version: "v1" }, "objects can be read in it");
  t.match(servedByCrd(crd), { version: "v1" });
});

await tap.test("droppingWrites() names the first fields", async (t) => {
  t.match(
    droppingWrites(crdLacking(7), "v1")?.message,
    /lacks spec\.f0, spec\.f1, spec\.f2, spec\.f3, spec\.f4 and 2 more, which/,
  );
  t.equal(droppingWrites(crdLacking(0), "v1"), undefined);
  t.equal(droppingWrites(crdLacking(7), "v2"), undefined, "the storage version itself");
});

await tap.test("servedByCrd() says where the objects of the CRD are", async (t) => {
  const resource = { group: "example.com", version: "v1", resource: "widgets" };
  t.same(servedByCrd(crdLacking(0)), { ...resource, kind: "Widget", scope: "Namespaced" });
});
