import { isNewer } from "../../../api/resource-version.ts";
import type { ObjectIdentity } from "../../kube/listed-object.ts";

/** What answers have shown of a resource, up to one moment. */
export interface ResourceState {
  /** The highest resourceVersion that an answer had. */
  readonly resourceVersion: string;
  /** The object that was written last, as the answer to that write has it; missing where none was. */
  readonly written?: ObjectIdentity;
}

/** What an answer shows that came later. */
export interface LaterAnswer {
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
  /** The last write before the last look that passed began. */
  #before: ObjectIdentity | undefined;
  /** The first one since. */
  #first: ObjectIdentity | undefined;
  /** The first one since the look that is under way began. */
  #later: ObjectIdentity | undefined;

  /** @param earlier what an earlier run has seen of it. @default nothing */
  constructor(earlier?: ResourceState) {
    this.#current = earlier;
    this.#before = earlier?.written;
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
      this.#first ??= written;
      this.#later ??= written;
    }
  }

  /**
   * Has `look` tell whether etcd still has what was seen. What a restore took back may have been followed by further writes, with
   * higher resourceVersions where etcd was restored with `--bump-revision`. So it looks for two writes: the last one before the last
   * look, which is gone where nothing was written between that look and the restore, and the first one since, which is gone otherwise.
   * A backup that is younger than that one is found by the next look, if it is restored after this one.
   * @param look for one object, or for none where none was written; throws where it is not as it was, or where that cannot be told
   */
  async lookedFor(look: (seen: ResourceState) => Promise<void>): Promise<void> {
    const now = this.#current;
    if (now === undefined) {
      return;
    }
    this.#later = undefined;
    const { resourceVersion } = now;
    const written = [this.#before, this.#first].filter((one) => one !== undefined);
    const sought = written.length === 0 ? [now] : written.map((one) => ({ resourceVersion, written: one }));
    for (const seen of sought) {
      await look(seen);
    }
    [this.#before, this.#first] = [now.written, this.#later];
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

/** Whether a list that was asked for after `seen` is from before it. */
export function isBehind(seen: ResourceState, { resourceVersion }: LaterAnswer): boolean {
  return isNewer(seen.resourceVersion, resourceVersion);
}

/** How a consistent list that was asked for after `seen` contradicts it, in words; `undefined` where it does not. */
export function contradiction(seen: ResourceState, answer: LaterAnswer): string | undefined {
  const { written } = seen;
  const { object } = answer;
  if (isBehind(seen, answer)) {
    return `the objects are at resourceVersion ${answer.resourceVersion}, and were at ${seen.resourceVersion} before`;
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
