import tap from "tap";
import { MAX_RECORD_LENGTH } from "../../src/trigger/crd-facts.ts";
import { CrdSights } from "../../src/trigger/crd-sights.ts";
import { crd } from "./situation.ts";

const NAME = "widgets.example.com";

await tap.test("CrdSights remember what the first look saw of a CRD until the StorageState tells it", (t) => {
  const sights = new CrdSights();
  const first = { uid: "crd-uid", generation: 3, storedVersions: ["v1", "v2"] };
  t.same(sights.saw(crd(["v1", "v2"])), first);
  t.same(sights.saw(crd(["v2"], { generation: 4 })), first, "another client has pruned it since");
  t.match(sights.saw(crd(["v2"], { uid: "another" })), { uid: "another" }, "it was deleted and created again");
  sights.written(NAME);
  t.match(sights.saw(crd(["v2"])), { storedVersions: ["v2"] });
  sights.keepOnly((name) => name !== NAME);
  t.match(sights.saw(crd(["v1", "v2"])), { storedVersions: ["v1", "v2"] });

  const many = Array.from({ length: MAX_RECORD_LENGTH }, (_, at) => `v${at + 1}`);
  sights.written(NAME);
  t.equal(sights.saw(crd(many)).storedVersions.length, 1, "a digest of them");
  t.end();
});
