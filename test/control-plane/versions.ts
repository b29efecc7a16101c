import { readFileSync } from "node:fs";

/** The versions of the control plane that the tests run against, as go.mod names them. */
export interface Versions {
  /** The oldest Go toolchain that builds it, such as "1.26.0". */
  readonly go: string;
  /** With the leading v, such as "v1.36.3": that of go.mod, or the one that KUBERNETES_VERSION asks for. */
  readonly kubernetes: string;
  /** The one of go.mod. */
  readonly pinnedKubernetes: string;
  /** With the leading v, such as "v3.6.8". */
  readonly etcd: string;
}

/**
 * Reads the versions from go.mod beside this file, the only place that states them.
 * @throws {Error} when go.mod does not name one of them, or KUBERNETES_VERSION is no version
 */
export function readVersions(): Versions {
  const text = readFileSync(new URL("go.mod", import.meta.url), "utf8");
  const pinnedKubernetes = match(text, /^\s*k8s\.io\/kubernetes (v\S+)/m, "k8s.io/kubernetes");
  return {
    go: match(text, /^go (\S+)$/m, "go"),
    kubernetes: askedVersion() ?? pinnedKubernetes,
    pinnedKubernetes,
    etcd: match(text, /^\s*go\.etcd\.io\/etcd\/server\/v3 (v\S+)/m, "go.etcd.io/etcd/server/v3"),
  };
}

function match(text: string, pattern: RegExp, what: string): string {
  const version = pattern.exec(text)?.[1];
  if (version === undefined) throw new Error(`Cannot read go.mod: it does not name a version of "${what}"`);
  return version;
}

function askedVersion(): string | undefined {
  const asked = process.env["KUBERNETES_VERSION"] ?? "";
  if (asked === "") return undefined;
  const version = /^v?(1\.\d+\.\d+)$/.exec(asked)?.[1];
  if (version === undefined) {
    throw new Error(`Cannot build Kubernetes "${asked}": expected KUBERNETES_VERSION to be a version such as 1.32.9`);
  }
  return `v${version}`;
}
