import { truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { PassThrough, Readable } from "node:stream";
import { text } from "node:stream/consumers";
import tap from "tap";
import { renderCheck } from "../../src/cli/render/render-check.ts";
import { runProgram } from "../../src/cli/program.ts";
import type { CheckEntry } from "../../src/inventory/upgrade.ts";
import { crdWith } from "../api/crd-with.ts";

const NOBODY = ["--kubeconfig", "/nowhere"];

async function check(args: readonly string[], stdin?: Readable): Promise<{ code: number; stderr: string }> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const said = text(stderr);
  const { signal } = new AbortController();
  const code = await runProgram(["check", ...args, ...NOBODY], { stdout, stderr, signal, ...(stdin && { stdin }) });
  stderr.end();
  return { code, stderr: await said };
}

function* endless(): Generator<Buffer> {
  for (;;) yield Buffer.alloc(1_048_576, " ");
}

await tap.test("check refuses files that it cannot read in one line, before it looks for a cluster", async (t) => {
  const dir = t.testdir({
    "empty.yaml": "",
    "text.yaml": "kind: CustomResourceDefinition: x",
    none: { "a.txt": "" },
    other: { "a.yml": "kind: Role" },
  });
  const huge = join(dir, "huge.yaml");
  writeFileSync(huge, "");
  truncateSync(huge, 68_000_000);
  const cases: readonly [args: readonly string[], code: number, stderr: RegExp][] = [
    [[], 2, /^error: Cannot tell what to check: pass files with -f \(- for stdin\) \[Usage\]\n$/],
    [["-f", join(dir, "missing.yaml")], 1, /^error: Cannot read .*missing\.yaml: ENOENT.* \[ManifestInvalid\]\n$/],
    [
      ["-f", join(dir, "empty.yaml")],
      1,
      /^error: Cannot read .*empty\.yaml: no CustomResourceDefinition.* \[ManifestInvalid\]\n$/,
    ],
    [
      ["-f", join(dir, "text.yaml")],
      1,
      /^error: Cannot read .*text\.yaml: a document is not valid YAML: .* \[ManifestInvalid\]\n$/,
    ],
    [
      ["-f", join(dir, "none")],
      1,
      /^error: Cannot read .*none: the directory has no \.yaml, \.yml or \.json file \[ManifestInvalid\]\n$/,
    ],
    [
      ["-f", join(dir, "other")],
      1,
      /^error: Cannot read .*a\.yml: no CustomResourceDefinition is in there, and 1 .* \[ManifestInvalid\]\n$/,
    ],
    [
      ["-f", huge],
      1,
      /^error: Cannot read .*huge\.yaml: all files together are larger than 64 MiB \[ManifestInvalid\]\n$/,
    ],
    [["-f", "-"], 1, /^error: Cannot read stdin: there is none \[ManifestInvalid\]\n$/],
    [["-f", "a", "extra"], 2, /too many arguments/],
  ];
  for (const [args, code, stderr] of cases) {
    const end = await check(args);
    t.match(end.stderr, stderr);
    t.equal(end.code, code, args.join(" "));
  }
  t.match(await check(["-f", "-"], Readable.from(endless())), {
    code: 1,
    stderr: /stdin: all files together are larger/,
  });
});

await tap.test("check reads the cluster's address only once its files are read", async (t) => {
  const dir = t.testdir({ "a.json": JSON.stringify(crdWith({ versions: ["v1+"] })) });
  t.match(await check(["-f", dir, "-f", join(dir, "a.json")]), { code: 1, stderr: /is there twice/ });
  t.match(await check(["-f", dir]), { code: 1, stderr: /\[KubeconfigInvalid\]\n$/ });
});

await tap.test(
  "renderCheck() shows the verdicts as a table, and below it why, what the API server says and what to do",
  (t) => {
    const stale: CheckEntry = {
      name: "widgets.example.com",
      source: "crd.yaml",
      verdict: "needs-migration",
      reason: "it drops v1",
      help: [],
      steps: [
        { kind: "migrate", does: "rewrites every object", why: "of v1" },
        { kind: "apply", does: "writes what the file says", why: "it can be read" },
      ],
      notes: ["a note"],
      apiServer: "missing from spec.versions",
      storageVersion: "v2",
      storedVersions: ["v1", "v2"],
      removedVersions: ["v1"],
      objects: 100_000,
    };
    const [, apply] = stale.steps;
    const fresh: CheckEntry = {
      name: "gadgets.example.com",
      source: "crd.yaml",
      verdict: "applicable",
      reason: "there is none",
      help: [],
      steps: apply ? [apply] : [],
      notes: [],
      removedVersions: [],
    };
    const refused: CheckEntry = { ...fresh, verdict: "refused", reason: "it cannot be", help: ["do this"], steps: [] };
    const items = [stale, fresh, refused];
    t.equal(
      renderCheck({ items, ignored: 1 }, "table"),
      `NAME                  VERDICT           STORAGE   STOREDVERSIONS   DROPPED   OBJECTS
widgets.example.com   needs-migration   v2        v1,v2            v1        100000
gadgets.example.com   applicable        -         -                -         -
gadgets.example.com   refused           -         -                -         -

widgets.example.com: it drops v1
  API server: missing from spec.versions
  1. migrate: rewrites every object
     why: of v1
  2. apply: writes what the file says
     why: it can be read
  ksvm migrate -f crd.yaml --apply does that; without --apply, all but the file itself
  note: a note

gadgets.example.com: it cannot be
  what helps: do this

1 object of other kinds ignored`,
    );
    t.match(JSON.parse(renderCheck({ items, ignored: 0 }, "json")), {
      items: [{ verdict: "needs-migration" }, {}, {}],
      ignored: 0,
    });
    t.match(renderCheck({ items, ignored: 0 }, "yaml"), /^kind: Check\nitems:\n {2}- name: widgets\.example\.com\n/m);
    t.end();
  },
);
