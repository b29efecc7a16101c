import tap from "tap";
import { ListPosition } from "../../../src/migrator/rewrite/list-position.ts";

const item = (name: string, namespace?: string) => ({
  name,
  ...(namespace === undefined ? {} : { namespace }),
  uid: name,
  resourceVersion: "1",
});

await tap.test(
  "ListPosition knows what was listed before the list began again, in the order of the API server",
  (t) => {
    const position = new ListPosition();
    // As etcd has it: "-" comes before "/".
    position.passed([item("z", "a-b"), item("b", "a")]);
    t.notOk(position.wasListed(item("z", "a-b")));
    position.startOver(0);
    t.ok(position.wasListed(item("z", "a-b")));
    t.ok(position.wasListed(item("b", "a")));
    t.notOk(position.wasListed(item("c", "a")));
    position.passed([item("z", "a-b")]);
    position.startOver(1);
    t.ok(position.wasListed(item("b", "a")), "the furthest counts");
    t.equal(position.listed, 1);
    t.end();
  },
);
