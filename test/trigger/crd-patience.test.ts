import tap from "tap";
import { CrdPatience } from "../../src/trigger/crd-patience.ts";
import { FakeClock } from "../fake-clock.ts";

const NAME = "widgets.example.com";

await tap.test(
  "CrdPatience gives API servers that are behind with a CRD three seconds, however long a look takes",
  async (t) => {
    const clock = new FakeClock();
    const patience = new CrdPatience(clock);
    t.ok(patience.isPatientWith(NAME));
    await clock.sleep(3_000);
    t.ok(patience.isPatientWith(NAME));
    await clock.sleep(1);
    t.notOk(patience.isPatientWith(NAME));
    patience.followed(NAME);
    t.ok(patience.isPatientWith(NAME), "they had followed in between");
    await clock.sleep(3_001);
    patience.keepOnly(() => false);
    t.ok(patience.isPatientWith(NAME), "the CRD was deleted, and there is another one of its name");
  },
);
