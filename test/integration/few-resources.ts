import { isAtLeast } from "../control-plane/features.ts";
import { optionsOf } from "./encrypted-objects.ts";

/** Groups that an API server does without: each resource costs a command with `--all` some seconds. */
const NOT_SERVED = [
  "autoscaling/v1",
  "autoscaling/v2",
  "batch/v1",
  "certificates.k8s.io/v1",
  "events.k8s.io/v1",
  "policy/v1",
  ...(isAtLeast(37) ? ["storagemigration.k8s.io/v1"] : []),
  ...(isAtLeast(34) ? ["resource.k8s.io/v1"] : []),
];

/** The options of an API server that serves few resources, and encrypts Secrets and ConfigMaps unless others are named. */
export function withFewResources(
  keys: readonly string[],
  { index = 0, resources = ["secrets", "configmaps"] }: { readonly index?: number; readonly resources?: string[] } = {},
) {
  const fewer = `--runtime-config=${NOT_SERVED.map((groupVersion) => `${groupVersion}=false`).join(",")}`;
  return { ...optionsOf(index, keys, { resources }), extraArgs: [fewer] };
}
