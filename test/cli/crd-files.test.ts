import tap from "tap";
import { readManifests } from "../../src/cli/shared/crd-files.ts";

function crd(name: string, more = ""): string {
  return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: ${name}
  creationTimestamp: null
  resourceVersion: "7"
  labels: {a: b}
spec:
  versions:
  - {name: v1, served: true, storage: true}
  - {name: v2, served: yes, storage: no}
${more}`;
}

const read = (...texts: readonly string[]) =>
  readManifests(texts.map((text, index) => ({ source: `f${index}`, text })));
const names = (...texts: readonly string[]) => read(...texts).crds.map(({ name }) => name);

await tap.test("readManifests() reads CRDs out of streams, lists and files, and counts the rest", (t) => {
  const list = `apiVersion: v1\nkind: List\nitems:\n- ${crd("c").trimEnd().replaceAll("\n", "\n  ")}\n- kind: Secret\n`;
  const json = JSON.stringify({
    kind: "CustomResourceDefinitionList",
    items: [{ ...read(crd("d")).crds[0], kind: "CustomResourceDefinition", metadata: { name: "d" } }],
  });
  const stream = `# a comment\n---\n${crd("a")}---\nkind: Secret\n--- # another\n${crd("b")}\n---\n\n# nothing\n`;
  const found = read(stream, list, json);
  t.same(
    found.crds.map(({ name }) => name),
    ["a", "b", "c", "d"],
  );
  t.equal(found.others, 2);
  t.same(names(`\uFEFF${crd("bom").replaceAll("\n", "\r\n")}`), ["bom"]);
  t.same(names(`${json}\n---\n${crd("e")}`), ["d", "e"]);
  const odd = ["!!str CustomResourceDefinition", ">-\n  CustomResourceDefinition"];
  for (const kind of odd) {
    t.same(names(crd("odd").replace("kind: CustomResourceDefinition", `kind: ${kind}`)), ["odd"], kind);
  }
  t.end();
});

await tap.test("readManifests() takes kind and apiVersion of items from a typed list, as kubectl does", (t) => {
  const item = { metadata: { name: "a" }, spec: { versions: [{ name: "v1", served: true, storage: true }] } };
  const list = { kind: "CustomResourceDefinitionList", apiVersion: "apiextensions.k8s.io/v1", items: [item] };
  const [manifest] = read(JSON.stringify(list)).crds;
  t.match(manifest, { name: "a", apiVersion: "apiextensions.k8s.io/v1", versions: [{ name: "v1" }] });
  const others = [
    { ...list, items: [{ ...item, kind: "Secret" }] },
    { ...list, items: [{ ...item, apiVersion: "v1" }] },
    { ...list, kind: "List", items: [item] },
    { ...list, kind: "SecretList", apiVersion: "v1", items: [item] },
  ];
  t.equal(read(crd("b"), ...others.map((other) => `${JSON.stringify(other)} # CustomResourceDefinition`)).others, 4);
  t.end();
});

await tap.test("readManifests() leaves out what only the API server sets, and reads booleans as kubectl does", (t) => {
  const [manifest] = read(crd("a", "status: {storedVersions: []}\n")).crds;
  t.match(manifest, { name: "a", source: "f0", apiVersion: "apiextensions.k8s.io/v1" });
  t.same([manifest?.labels, manifest?.annotations], [{ a: "b" }, {}]);
  t.notOk("status" in (manifest ?? {}));
  t.match(manifest?.spec, { versions: [{}, { served: true, storage: false }] });
  t.same(manifest?.versions, [
    { name: "v1", served: true, storage: true },
    { name: "v2", served: true, storage: false },
  ]);
  const [schema] = read(crd("a", "  x: {date: 2020-01-01, time: 12:30, octal: 0777}\n")).crds;
  t.match(schema?.spec, { x: { date: "2020-01-01", time: "12:30", octal: 511 } });
  t.end();
});

await tap.test("readManifests() takes what it can of a malformed CRD: the API server judges it", (t) => {
  const text =
    "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}, spec: {versions: 7}}";
  t.match(read(text).crds, [{ name: "a", versions: [], target: "" }]);
  t.match(read(text.replace("/v1", "/v1beta1")).crds, [{ apiVersion: "apiextensions.k8s.io/v1beta1" }]);
  t.equal(read(crd("a"), text.replace("apiextensions.k8s.io", "example.com").replace("{name: a}", "{}")).others, 1);
  t.end();
});

const bomb = [
  "a: &a [x,x,x,x,x,x,x,x,x,x]",
  ..."bcdefghi".split("").map((c, i) => `${c}: &${c} [${`*${"abcdefgh"[i] ?? ""},`.repeat(10)}]`),
];
const bad: readonly [name: string, text: string, message: RegExp][] = [
  ["an empty file", "", /no CustomResourceDefinition is in there, and 0 objects of other kinds/],
  ["only comments", "# CustomResourceDefinition\n---\n", /no CustomResourceDefinition/],
  ["other kinds only", "kind: Secret\n---\nkind: Role\n", /and 2 objects of other kinds/],
  [
    "no YAML",
    "kind: CustomResourceDefinition\n  a: [",
    /Cannot read f0: a document is not valid YAML: .* at line 1, column 7$/,
  ],
  ["a template that was not rendered", "{{ if }}\nkind: CustomResourceDefinition\n{{ end }}", /Cannot read f0: /],
  ["cut-off JSON", '{"kind": "CustomResourceDefinition", "metadata": {', /Cannot read f0: /],
  ["a plain text", "CustomResourceDefinition", /no CustomResourceDefinition is in there/],
  ["a CRD without a name", crd("a").replace("name: a", "x: a"), /has no metadata\.name/],
  ["the same CRD twice", `${crd("a")}---\n${crd("a")}`, /"a" is there twice, the first time in f0/],
  ["a bomb of aliases", `kind: CustomResourceDefinition\n${bomb.join("\n")}`, /Excessive alias count/],
  ["a value that holds itself", `${crd("a")}  x: &x [*x]\n`, /Cannot read f0: /],
  ["a list that holds itself", "&l {kind: CustomResourceDefinitionList, items: [*l]}", /Cannot read f0: /],
  ["nesting without end", `kind: CustomResourceDefinition\nx: ${"[".repeat(50_000)}`, /Cannot read f0: /],
  [
    "a YAML document that is too large",
    `${crd("a")}  x: ${"y".repeat(8_400_000)}`,
    /a YAML document is larger than 8 MiB/,
  ],
];

for (const [name, text, message] of bad) {
  await tap.test(`readManifests() refuses ${name} in one line`, (t) => {
    t.throws(() => read(text), { code: "ManifestInvalid", message });
    try {
      read(text);
    } catch (error) {
      t.notMatch((error as Error).message, /\n/);
    }
    t.end();
  });
}
