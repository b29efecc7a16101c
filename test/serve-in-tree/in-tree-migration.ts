import type { InTreeMigration, StatusWriter } from "../../src/in-tree/in-tree-migrations.ts";

/** A migration of Kubernetes' own migrator, with conditions as `type=status`. */
export function inTreeMigration({
  name = "one",
  uid = name,
  resource = "widgets",
  created = "2026-01-01T00:00:00Z",
  conditions = [],
  resourceVersion,
  writers = [],
}: {
  readonly name?: string;
  readonly uid?: string;
  readonly resource?: string;
  readonly created?: string;
  readonly conditions?: readonly string[];
  readonly resourceVersion?: string;
  readonly writers?: readonly StatusWriter[];
} = {}): InTreeMigration {
  return {
    metadata: { name, uid, resourceVersion: "7", generation: 1, creationTimestamp: created },
    spec: { resource: { group: "example.com", resource } },
    status: {
      conditions: conditions.map((text) => {
        const [type = "", status = ""] = text.split("=");
        return { type, status, reason: "Reason", message: "", lastTransitionTime: created };
      }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
    },
    writers,
  };
}
