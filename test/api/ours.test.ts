import t from "tap";
import { besideHelm, helmMarksOf, isOurs, managedByOf } from "../../src/api/ours.ts";

const BY = "app.kubernetes.io/managed-by";
const OF_CHART = { [BY]: "Helm", "app.kubernetes.io/part-of": "ksvm" };
const OF_OTHER_CHART = { [BY]: "Helm", "app.kubernetes.io/name": "widgets" };

await t.test("an object is ours by its label, and where Helm installed it as a part of ksvm", async (t) => {
  t.ok(isOurs({ [BY]: "ksvm" }));
  t.ok(isOurs(OF_CHART));
  t.ok(isOurs({ [BY]: "Helm", "app.kubernetes.io/name": "ksvm" }));
  for (const labels of [undefined, {}, { [BY]: "Helm" }, OF_OTHER_CHART, { "app.kubernetes.io/name": "ksvm" }]) {
    t.notOk(isOurs(labels), JSON.stringify(labels));
  }
});

await t.test("what Helm installed keeps the name of Helm in its label", async (t) => {
  t.equal(managedByOf(OF_CHART), "Helm");
  for (const labels of [undefined, {}, OF_OTHER_CHART, { [BY]: "ksvm" }]) t.equal(managedByOf(labels), "ksvm");
  const wanted = { metadata: { name: "one", labels: { [BY]: "ksvm", other: "x" } }, spec: {} };
  const annotations = { "meta.helm.sh/release-name": "a", other: "y" };
  t.same(besideHelm(wanted, { metadata: { labels: OF_CHART, annotations } }), {
    metadata: {
      name: "one",
      labels: { ...OF_CHART, other: "x" },
      annotations: { "meta.helm.sh/release-name": "a" },
    },
    spec: {},
  });
  for (const live of [undefined, { metadata: {} }, { metadata: { labels: OF_OTHER_CHART } }]) {
    t.equal(besideHelm(wanted, live), wanted);
  }
  const unlabeled: { readonly metadata: { readonly labels?: Record<string, string> } } = { metadata: {} };
  t.equal(besideHelm(unlabeled, { metadata: { labels: OF_CHART } }), unlabeled);
});

await t.test(
  "what takes the place of an object of our chart has the marks by which Helm knows its release",
  async (t) => {
    const annotations = { "meta.helm.sh/release-name": "a", "meta.helm.sh/release-namespace": "b", other: "c" };
    t.same(helmMarksOf({ labels: { ...OF_CHART, other: "d" }, annotations }), {
      labels: OF_CHART,
      annotations: { "meta.helm.sh/release-name": "a", "meta.helm.sh/release-namespace": "b" },
    });
    const none = { labels: {}, annotations: {} };
    for (const labels of [{}, OF_OTHER_CHART, { [BY]: "ksvm" }]) t.same(helmMarksOf({ labels, annotations }), none);
    t.same(helmMarksOf({}), none);
  },
);
