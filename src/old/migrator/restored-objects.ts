import type { PartialObjectMetadata } from "../../api/meta.ts";
import { isReinitializing } from "../kube/failure.ts";
import { listNamed } from "../kube/list-named.ts";
import { ACCEPT_METADATA_LIST } from "../kube/resources.ts";
import { StartAgain } from "../retry/start-again.ts";
import { listInAnyVersion, type VersionedResource } from "./rewrite/list-in-any-version.ts";
import { contradiction, isBehind, type LaterAnswer, type ResourceState, SeenState } from "./rewrite/seen-state.ts";
import { throwIfUnserved } from "./rewrite/unserved-version.ts";
import type { RunContext } from "./run-context.ts";

/** Between two looks while objects are rewritten, in milliseconds: the Lease of a run is renewed as often. */
const LOOK_EVERY_MS = 5_000;
/**
 * So long a list may be behind what an earlier answer showed, in milliseconds: each kine before 0.17, in the place of etcd, answers by what it
 * last read from its database, and reads it once a second. After a restore of etcd lists stay behind for longer, unless clients write as much again.
 *
 * https://github.com/k3s-io/kine/blob/v0.16.4/pkg/logstructured/sqllog/sql.go
 */
const LAG_MS = 2_000;
const LOOK_AGAIN_MS = 500;

type RestoredContext = Pick<RunContext, "client" | "clock" | "pacer" | "retrier" | "signal">;

/**
 * Looks whether etcd still has what a run rewrote. A backup that was made and restored between two looks is not noticed where it was
 * restored with `--bump-revision`, or where as much was written since.
 */
export class RestoredObjects {
  readonly #context: RestoredContext;
  readonly #resource: VersionedResource;
  /** What the run has seen. */
  readonly seen: SeenState;
  #lookedAt: number;

  /**
   * @param resource as it is served
   * @param seen what earlier attempts have seen of it. @default nothing
   */
  constructor(context: RestoredContext, resource: VersionedResource, seen = new SeenState()) {
    this.#context = context;
    this.#resource = resource;
    this.seen = seen;
    this.#lookedAt = context.clock.monotonic();
  }

  /**
   * Goes on with what earlier attempts of this run have seen. A run that goes on where another process stood looks at once, by what that one had seen.
   * @param before `objectsSeen`: by earlier attempts; `seen`: by that process
   * @throws as {@link assertNone}
   */
  static async begin(
    context: RestoredContext,
    resource: VersionedResource,
    { objectsSeen, seen }: { readonly objectsSeen?: SeenState | undefined; readonly seen?: ResourceState | undefined },
  ): Promise<RestoredObjects> {
    if (objectsSeen !== undefined) {
      return new RestoredObjects(context, resource, objectsSeen);
    }
    const restored = new RestoredObjects(context, resource, new SeenState(seen));
    await restored.assertNone();
    return restored;
  }

  /** Looks, unless it did so a moment ago. @throws as {@link assertNone} */
  async assertNoneOfLate(): Promise<void> {
    if (this.#context.clock.monotonic() - this.#lookedAt >= LOOK_EVERY_MS) {
      await this.assertNone();
    }
  }

  /** @throws {StartAgain} where objects are as they were before the run saw them; whatever the requests end in. */
  async assertNone(): Promise<void> {
    const { clock } = this.#context;
    await this.seen.lookedFor(async (seen) => {
      const why = contradiction(seen, await this.#lookUntilUpToDate(seen));
      if (why !== undefined) {
        const text = `Cannot go on: objects are as they were some time ago, as after etcd was restored from a backup: ${why}`;
        throw new StartAgain("OwnershipLost", text);
      }
      this.#lookedAt = clock.monotonic();
    });
  }

  /** Looks again for a moment where the list is behind `seen`. @returns the last answer, whichever it is */
  async #lookUntilUpToDate(seen: ResourceState): Promise<LaterAnswer> {
    const { clock, pacer, retrier, signal } = this.#context;
    const until = clock.monotonic() + LAG_MS;
    for (;;) {
      const answer = await retrier.run(() => pacer.beside(() => this.#look(seen), signal), signal);
      if (!isBehind(seen, answer) || clock.monotonic() >= until) {
        return answer;
      }
      await clock.sleep(LOOK_AGAIN_MS, signal);
    }
  }

  async #look({ written }: ResourceState): Promise<LaterAnswer> {
    const { client, signal } = this.#context;
    const { resource } = this.#resource;
    if (written === undefined) {
      return listInAnyVersion(client, this.#resource, { limit: 1, signal });
    }
    try {
      const options = { accept: ACCEPT_METADATA_LIST, signal };
      const found = await listNamed<PartialObjectMetadata>(client.transport, resource, written, options);
      return { resourceVersion: found.resourceVersion, object: found.object?.metadata };
    } catch (error) {
      if (isReinitializing(error)) {
        // An object that an earlier CRD of another scope left in etcd keeps the API server from filling its watch cache; a page does without it.
        return listInAnyVersion(client, this.#resource, { limit: 1, signal });
      }
      await throwIfUnserved(client.transport, resource, error, { signal });
      throw error;
    }
  }
}
