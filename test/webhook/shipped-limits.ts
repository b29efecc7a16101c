import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";

/** The limits that the manifests give a replica. */
export interface ShippedLimits {
  /** Its environment variables with constant values. */
  readonly environment: Readonly<Record<string, string>>;
  /** Flags of Node among them. */
  readonly nodeFlags: readonly string[];
  readonly memoryMib: number;
}

/** What deploy/base/controller.yaml says. */
export const SHIPPED_LIMITS: ShippedLimits = readLimits();

function readLimits(): ShippedLimits {
  const file = join(import.meta.dirname, "..", "..", "deploy", "base", "controller.yaml");
  const objects = parseAllDocuments(readFileSync(file, "utf8")).map((each) => each.toJS() as { readonly kind: string });
  const { spec } = objects.find(({ kind }) => kind === "Deployment") as unknown as {
    spec: {
      template: {
        spec: { containers: [{ env: { name: string; value?: string }[]; resources: { limits: { memory: string } } }] };
      };
    };
  };
  const [{ env, resources }] = spec.template.spec.containers;
  const environment = Object.fromEntries(
    env.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]])),
  );
  return {
    environment,
    nodeFlags: environment["NODE_OPTIONS"]?.split(" ") ?? [],
    memoryMib: Number.parseInt(resources.limits.memory, 10),
  };
}
