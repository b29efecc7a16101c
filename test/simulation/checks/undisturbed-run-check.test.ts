import tap from "tap";
import { crdWith } from "../../api/crd-with.ts";
import { isHeldUpByGoneVersion } from "./undisturbed-run-check.ts";

const REFUSAL = "the API server answered 500: request to convert CR from an invalid group/version: example.com/v3";

await tap.test("a run is held up where an object is stored in a version that another client took off the CRD", (t) => {
  const crd = crdWith({ versions: ["v1", "v2+"] });
  t.ok(isHeldUpByGoneVersion(REFUSAL, crd, ["example.com/v2", "example.com/v3"]));
  t.notOk(isHeldUpByGoneVersion(REFUSAL, crd, ["example.com/v2"]), "no such object is there");
  t.notOk(isHeldUpByGoneVersion(REFUSAL, crdWith({ versions: ["v1", "v2+", "v3"] }), ["example.com/v3"]));
  t.notOk(isHeldUpByGoneVersion("migrated", crd, ["example.com/v3"]));
  t.notOk(isHeldUpByGoneVersion(undefined, crd, ["example.com/v3"]));
  t.end();
});
