import type { NewObject } from "../api-client.ts";
import type { Cluster } from "../integration/cluster.ts";
import type { TestKind } from "../integration/crd-fixture.ts";

/** How many objects are created at the same time, so that large ones do not fill this process. */
const AT_ONCE = 8;

/**
 * Creates objects with annotations of a given size, up to the 256 KiB that an API server takes: metadata-only lists and
 * answers carry them.
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
