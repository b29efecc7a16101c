import { readVersions } from "./versions.ts";

/** Whether the control plane that the tests run against is Kubernetes 1.`minor` or newer. */
export function isAtLeast(minor: number): boolean {
  return Number(readVersions().kubernetes.split(".")[1]) >= minor;
}

/** For the `skip` of a test: what it needs where the control plane is older than Kubernetes 1.`minor`, else `false`. */
export function unlessAtLeast(minor: number, what: string): string | false {
  return isAtLeast(minor) ? false : `needs Kubernetes 1.${minor} or newer: ${what}`;
}
