import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import tap from "tap";
import { findInEnvtest, newestPatch } from "./envtest.ts";

const SYSTEM = `${process.platform}-${process.arch === "x64" ? "amd64" : process.arch}`;

await tap.test("newestPatch() takes the newest patch of the same minor, for this machine", (t) => {
  const folders = ["1.36.2", "1.36.10", "1.35.9", "1.37.0"].map((release) => `${release}-${SYSTEM}`);
  t.equal(newestPatch([...folders, "1.36.11-plan9-mips", "notes"], "v1.36.3"), `1.36.10-${SYSTEM}`);
  t.equal(newestPatch(folders, "v1.34.4"), undefined);
  t.equal(newestPatch([], "v1.36.3"), undefined);
  t.end();
});

await tap.test("findInEnvtest() finds what is there, and nothing else", (t) => {
  const data = t.testdir({});
  const folder = process.platform === "darwin" ? "kubebuilder.envtest" : "kubebuilder-envtest";
  const release = join(data, folder, "k8s", `1.36.2-${SYSTEM}`);
  t.equal(findInEnvtest("etcd", "v1.36.3", { XDG_DATA_HOME: data }), undefined);
  mkdirSync(release, { recursive: true });
  writeFileSync(join(release, "etcd"), "");
  t.equal(findInEnvtest("etcd", "v1.36.3", { XDG_DATA_HOME: data }), join(release, "etcd"));
  t.equal(findInEnvtest("kube-apiserver", "v1.36.3", { XDG_DATA_HOME: data }), undefined);
  t.end();
});
