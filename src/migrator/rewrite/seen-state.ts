import { isNewer } from "../../api/resource-version.ts";
import type { ObjectIdentity } from "../../kube/listed-object.ts";

/** What answers have shown of a resource, up to one moment. */
export interface ResourceState {
  /** The highest resourceVersion that an answer had. */
  readonly resourceVersion: string;
  /** The object that was written last, as the answer to that write has it; missing where none was. */
  readonly written?: ObjectIdentity;
}

/** What an answer shows that came later. */
interface LaterAnswer {
  /** Of the list. */
  readonly resourceVersion: string;
  /** The object that {@link ResourceState} names; `undefined` where there is none of its name any more, which says nothing. */
  readonly object?: Pick<ObjectIdentity, "uid" | "resourceVersion"> | undefined;
}

/**
 * What a run has seen of the objects that it rewrites. The Lease of the run shows that etcd was restored from a backup only where
 * Leases are in the same etcd, which `--etcd-servers-overrides` of kube-apiserver can change. Within one resource, resourceVersions
 * never go back, and what was written stays.
 */
export class SeenState {
  #current: ResourceState | undefined;

  /** @param earlier what an earlier run has seen of it. @default nothing */
  constructor(earlier?: ResourceState) {
    this.#current = earlier;
  }

  /** `undefined` where nothing was seen, or where resourceVersions cannot be compared. */
  get current(): ResourceState | undefined {
    return this.#current;
  }

  /** A list showed the resource at this resourceVersion. */
  listed(resourceVersion: string): void {
    if (this.#isHighest(resourceVersion)) {
      this.#current = { ...this.#current, resourceVersion };
    }
  }

  /** A write of this run made the object what it is. */
  wrote({ name, namespace, uid, resourceVersion }: ObjectIdentity): void {
    if (this.#isHighest(resourceVersion)) {
      const written = { name, uid, resourceVersion, ...(namespace === undefined ? {} : { namespace }) };
      this.#current = { resourceVersion, written };
    }
  }

  #isHighest(resourceVersion: string): boolean {
    return isNewer(resourceVersion, this.#current?.resourceVersion ?? "0");
  }
}

/** What was read from the cluster as a state of a resource; `undefined` where it is no whole one. */
export function resourceStateIn(value: unknown): ResourceState | undefined {
  const { resourceVersion, written } = (value ?? {}) as Record<string, unknown>;
  const object = identityIn(written);
  const isWhole = typeof resourceVersion === "string" && (written === undefined || object !== undefined);
  return isWhole ? { resourceVersion, ...(object === undefined ? {} : { written: object }) } : undefined;
}

function identityIn(value: unknown): ObjectIdentity | undefined {
  const { name, namespace, uid, resourceVersion } = (value ?? {}) as Record<string, unknown>;
  if (typeof name !== "string" || typeof uid !== "string" || typeof resourceVersion !== "string") {
    return undefined;
  }
  return { name, uid, resourceVersion, ...(typeof namespace === "string" ? { namespace } : {}) };
}

/** How a consistent list that was asked for after `seen` contradicts it, in words; `undefined` where it does not. */
export function contradiction(seen: ResourceState, { object, resourceVersion }: LaterAnswer): string | undefined {
  const { written } = seen;
  if (isNewer(seen.resourceVersion, resourceVersion)) {
    return `the objects are at resourceVersion ${resourceVersion}, and were at ${seen.resourceVersion} before`;
  }
  if (
    written !== undefined &&
    object?.uid === written.uid &&
    isNewer(written.resourceVersion, object.resourceVersion)
  ) {
    return `"${written.name}" is at resourceVersion ${object.resourceVersion}, and was written at ${written.resourceVersion}`;
  }
  return undefined;
}
