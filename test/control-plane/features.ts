import { readVersions } from "./versions.ts";

/** Whether the control plane that the tests run against is Kubernetes 1.`minor` or newer. */
export function isAtLeast(minor: number): boolean {
  return Number(readVersions().kubernetes.split(".")[1]) >= minor;
}

/** For the `skip` of a test: what it needs where the control plane is older than Kubernetes 1.`minor`, else `false`. */
export function unlessAtLeast(minor: number, what: string): string | false {
  return isAtLeast(minor) ? false : `needs Kubernetes 1.${minor} or newer: ${what}`;
}

/**
 * The feature gates that KSVM_TEST_FEATURE_GATES names for every API server, such as `CBORServingAndStorage=true`.
 * @throws {Error} when it names something else
 */
export function askedFeatureGates(): Readonly<Record<string, boolean>> {
  const pairs = (process.env["KSVM_TEST_FEATURE_GATES"] ?? "").split(",").filter((pair) => pair !== "");
  return Object.fromEntries(
    pairs.map((pair) => {
      const [, name, value] = /^(\w+)=(true|false)$/.exec(pair) ?? [];
      if (name === undefined) {
        throw new Error(
          `Cannot set feature gate "${pair}": expected KSVM_TEST_FEATURE_GATES to be such as A=true,B=false`,
        );
      }
      return [name, value === "true"];
    }),
  );
}
