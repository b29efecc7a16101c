import { randomBytes } from "node:crypto";
import { type NewObject, type Resource } from "../api-client.ts";

/** What a test's CRD looks like. */
export interface CrdShape {
  /** @default "Namespaced" */
  readonly scope?: "Namespaced" | "Cluster";
  /** @default ["v1alpha1", "v1"] */
  readonly versions?: readonly string[];
  readonly storage: string;
  /** Versions that are not served. @default none */
  readonly unserved?: readonly string[];
  /** @default false */
  readonly statusSubresource?: boolean;
  readonly conversion?: object;
  /** The schema of `spec`. @default anything goes */
  readonly specSchema?: object;
  /** That of single versions, by their names. @default that of `specSchema` */
  readonly specSchemas?: Readonly<Record<string, object>>;
  /** Of the CRD. @default none */
  readonly annotations?: Readonly<Record<string, string>>;
}

export const GROUP = "example.com";

/** A kind of its own for each test, so that no test stands in another's way. */
export class TestKind {
  readonly plural: string;
  readonly kind: string;

  constructor(word: string) {
    const unique = `${word}${randomBytes(3).toString("hex")}`;
    this.plural = `${unique}s`;
    this.kind = unique.charAt(0).toUpperCase() + unique.slice(1);
  }

  /** Name of the CRD. */
  get name(): string {
    return `${this.plural}.${GROUP}`;
  }

  manifest(shape: CrdShape) {
    const { plural, kind, name } = this;
    return {
      apiVersion: "apiextensions.k8s.io/v1",
      kind: "CustomResourceDefinition",
      metadata: { name, ...(shape.annotations === undefined ? {} : { annotations: shape.annotations }) },
      spec: {
        group: GROUP,
        scope: shape.scope ?? "Namespaced",
        names: { plural, singular: kind.toLowerCase(), kind, listKind: `${kind}List` },
        versions: versionsOf(shape),
        ...(shape.conversion === undefined ? {} : { conversion: shape.conversion }),
      },
    };
  }

  resource(version: string): Resource {
    return { group: GROUP, version, resource: this.plural };
  }

  /** Objects in the default namespace, named after `prefix` and their number. */
  objects(count: number, version: string, prefix = "w"): readonly NewObject[] {
    return Array.from({ length: count }, (_, index) => this.object(`${prefix}${index}`, version));
  }

  object(name: string, version: string): NewObject {
    const metadata = { name, namespace: "default" };
    return { apiVersion: `${GROUP}/${version}`, kind: this.kind, metadata, spec: { size: name.length } };
  }
}

/** `spec.versions` for a shape. */
export function versionsOf(shape: CrdShape) {
  const { versions = ["v1alpha1", "v1"], unserved = [] } = shape;
  const open = { type: "object", "x-kubernetes-preserve-unknown-fields": true };
  const schemaOf = (name: string) => {
    const spec = shape.specSchemas?.[name] ?? shape.specSchema ?? open;
    return { type: "object", properties: { spec, status: open } };
  };
  return versions.map((name) => ({
    name,
    served: !unserved.includes(name),
    storage: name === shape.storage,
    schema: { openAPIV3Schema: schemaOf(name) },
    ...(shape.statusSubresource === true ? { subresources: { status: {} } } : {}),
  }));
}
