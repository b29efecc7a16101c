import type { NewObject } from "../../src/kube/client.ts";
import type { Cluster } from "./cluster.ts";
import type { TestKind } from "./crd-fixture.ts";

/** How many objects are created at the same time, so that large ones do not fill this process. */
const AT_ONCE = 8;

/**
 * Creates objects with annotations of a given size in all: the largest part of an object that a metadata-only list and
 * a metadata-only answer carry. An API server takes up to 256 KiB of annotations; a CRD's objects hold the rest as
 * managedFields.
 */
export async function createAnnotated(
  cluster: Cluster,
  kind: TestKind,
  { count, bytes, version }: { readonly count: number; readonly bytes: number; readonly version: string },
): Promise<void> {
  const text = "x".repeat(bytes);
  for (let from = 0; from < count; from += AT_ONCE) {
    const batch = Array.from({ length: Math.min(AT_ONCE, count - from) }, (_, n) => annotated(kind, from + n));
    await Promise.all(batch.map((object) => cluster.api.create(kind.resource(version), object)));
  }

  function annotated(of: TestKind, index: number): NewObject {
    const object = of.object(`large-${index}`, version);
    return { ...object, metadata: { ...object.metadata, annotations: { text } } };
  }
}
