import { createHash } from "node:crypto";
import t from "tap";
import { digestOf, pinProblems, type SourceReader } from "./pinned-file.ts";

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

function readerOf(files: Readonly<Record<string, string>>): SourceReader {
  return {
    read: (path) => (files[path] === undefined ? undefined : Buffer.from(files[path])),
    list: (folder) => Object.keys(files).filter((path) => path.startsWith(folder)),
  };
}

const FILES = { "a.go": "package a\n", "pkg/c.go": "c", "pkg/b.go": "b" };
const PINS = [
  { path: "a.go", sha256: sha256("package a\n") },
  { path: "pkg/", sha256: sha256(`${sha256("b")}  pkg/b.go\n${sha256("c")}  pkg/c.go\n`) },
];

await t.test("pinProblems() finds nothing where every file is the pinned one", async (t) => {
  t.same(pinProblems("x v1", PINS, readerOf(FILES)), []);
});

await t.test("pinProblems() names what differs, and what is missing", async (t) => {
  const changed = { ...FILES, "a.go": "package b\n", "pkg/d.go": "d" };
  const found = digestOf("pkg/", readerOf(changed));
  t.same(pinProblems("x v1", PINS, readerOf(changed)), [
    `Cannot use x v1: "a.go" is not the pinned one: expected SHA-256 ${PINS[0]?.sha256}, found ${sha256("package b\n")}`,
    `Cannot use x v1: "pkg/" is not the pinned one: expected SHA-256 ${PINS[1]?.sha256}, found ${found}`,
  ]);
  t.same(pinProblems("x v1", PINS, readerOf({})), [
    'Cannot use x v1: "a.go" is not there',
    'Cannot use x v1: "pkg/" is not there',
  ]);
});
