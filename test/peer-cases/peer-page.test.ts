import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { type PinnedFile, pinProblems } from "../conformance/pinned-file.ts";
import { ALL_PEERS, PEER_PAGE } from "./all-peers.ts";
import { IN_TREE } from "./in-tree.ts";
import { peerPage } from "./peer-page.ts";

const root = new URL("../../", import.meta.url);

/** Upstream's own text of the in-tree cases, where Go has it; `undefined` elsewhere. */
function inTreeText(): { readonly text: string; readonly problems: readonly string[] } | undefined {
  const { version, sources } = IN_TREE.peer;
  const folder = join(moduleCache(), `k8s.io/kubernetes@${version}`);
  if (!existsSync(folder)) return undefined;
  const pins: readonly PinnedFile[] = sources;
  const read = (path: string): Uint8Array | undefined =>
    existsSync(join(folder, path)) ? readFileSync(join(folder, path)) : undefined;
  const problems = pinProblems("Kubernetes", pins, { read, list: () => [] });
  return { text: sources.map(({ path }) => String(Buffer.from(read(path) ?? []))).join("\n"), problems };
}

function moduleCache(): string {
  try {
    return execFileSync("go", ["env", "GOMODCACHE"], { encoding: "utf8" }).trim();
  } catch {
    return "/nowhere";
  }
}

/** The rows of upstream's tables, which its tests name by a field `name`. */
function rowsIn(text: string): readonly string[] {
  return [...text.matchAll(/^\t{2,3}\{?\s*name:\s+"([^"]+)"|^\t\t\}, \{\n\t\t\tname: +"([^"]+)"/gm)].map(
    ([, a, b]) => a ?? b ?? "",
  );
}

await t.test("docs/peer-cases.md is what the tables say", async (t) => {
  t.equal(readFileSync(PEER_PAGE, "utf8"), peerPage(ALL_PEERS), "node test/peer-cases/write-page.ts writes it again");
});

await t.test("each case has a name of its own, and each of upstream's tests stands once", async (t) => {
  for (const { peer, cases } of ALL_PEERS) {
    const ids = cases.map(({ id }) => id);
    t.same(ids, [...new Set(ids)]);
    const tests = cases.flatMap((one) => one.tests);
    t.same(tests, [...new Set(tests)]);
    const source = readFileSync(new URL(peer.runBy, root), "utf8");
    for (const { id, notApplicable } of cases) {
      t.equal(source.includes(`"${id}": `), notApplicable === undefined, id);
    }
  }
});

await t.test("a cell of a table holds no end of a cell or of a line", async (t) => {
  for (const { situation, peerDoes, ksvmDoes, notApplicable = "" } of ALL_PEERS.flatMap(({ cases }) => cases)) {
    t.notMatch([situation, peerDoes, ksvmDoes, notApplicable].join(""), /[|\n]/);
  }
});

const upstream = inTreeText();

await t.test(
  "the in-tree cases are all of those that its unit tests have, in the files that are pinned",
  { skip: upstream === undefined && "Go does not have the sources of Kubernetes" },
  async (t) => {
    const { text, problems } = upstream ?? { text: "", problems: [] };
    t.same(problems, []);
    const listed = IN_TREE.cases.flatMap(({ tests }) => tests.map((test) => test.slice(test.indexOf("/") + 1)));
    t.same(listed.toSorted(), rowsIn(text).toSorted());
    for (const test of IN_TREE.cases.flatMap(({ tests }) => tests)) {
      t.ok(text.includes(`func ${test.slice(0, test.indexOf("/"))}(`), test);
    }
  },
);
