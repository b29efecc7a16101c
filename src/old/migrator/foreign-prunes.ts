import {
  type CustomResourceDefinition,
  isClean,
  isStorageVersionListed,
  storageVersionOf,
  storedVersionsOf,
} from "../../api/crd.ts";
import { OWNER_ANNOTATION } from "../../api/names.ts";
import { hasFreezeAnnotation } from "../../api/owner.ts";
import { isNewer } from "../../api/resource-version.ts";
import { KsvmError } from "../../errors.ts";
import { freezeLifted, ownershipLost } from "../freeze/crd-expectation.ts";
import { updateCrd } from "../freeze/freeze.ts";
import type { Fence } from "../kube/transport-options.ts";
import { findCrd } from "../../resources/read-crd.ts";
import { LoopPace } from "../retry/loop-pace.ts";
import { besidesObjects, CrdLooks } from "./crd-looks.ts";
import type { RunContext } from "./run-context.ts";

/** Between two times that the storage version is put back, in milliseconds, where another client takes it out again and again. */
const PACE = { minMs: 1_000, maxMs: 10_000, freeTurns: 3 };

/**
 * What other clients take out of the `status.storedVersions` of a frozen CRD while a run rewrites its objects.
 *
 * An update of the status is not checked: a client that decided before the storage version changed may take that version out. Then no
 * object may be written in it (S1). Any update of the CRD itself has the API server list it again.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition/strategy.go
 */
export class ForeignPrunes {
  readonly #context: RunContext;
  readonly #crdName: string;
  readonly #pace: LoopPace;
  /** The API server that answers the watch may lag. */
  readonly #looks: CrdLooks;
  readonly #abort = new AbortController();
  /** Takes note of the CRD as a look shows it, and throws where no object may be written any more. @default {@link saw} */
  judge = (crd: CustomResourceDefinition): void => this.saw(crd);
  /** Resolves once the storage version is listed again; `undefined` while it is listed. After a failure no object is written any more. */
  #listing: Promise<void> | undefined;
  /** How much longer objects have waited for that in all than they could be written in between, in milliseconds. */
  #waitedMs = 0;
  /** When it was listed last, on the monotonic clock. */
  #listedAt = Number.NEGATIVE_INFINITY;
  /** The newest resourceVersion of the CRD at which it was seen to be missing, since the CRD was last about to be read. */
  #missingAt = "";

  /** @param context fenced by the Lease of the run, and not by {@link passed} */
  constructor(context: RunContext, crdName: string) {
    this.#context = { ...context, signal: AbortSignal.any([context.signal, this.#abort.signal]) };
    this.#crdName = crdName;
    this.#pace = new LoopPace({ ...PACE, clock: context.clock });
    this.#looks = new CrdLooks(this.#context, crdName, (crd) => this.judge(crd));
  }

  /** Takes note of the CRD as the run sees it. Where the storage version is missing, objects wait until it is listed again. */
  saw(crd: CustomResourceDefinition): void {
    if (isStorageVersionListed(crd)) {
      return;
    }
    const { resourceVersion } = crd.metadata;
    // A watch may be late.
    if (!isNewer(this.#missingAt, resourceVersion)) {
      this.#missingAt = resourceVersion;
    }
    if (this.#listing === undefined) {
      this.#listing = this.#list();
      this.#listing.catch(() => undefined);
    }
  }

  /**
   * To be awaited before an object is written: resolves once the storage version is listed, and what confirms the Lease of the run has passed.
   * @throws {KsvmError} FreezeLifted where a user lifted the freeze; OwnershipLost where its owner was removed; another where it cannot be listed again.
   * @throws {WaitingForOthers} where an attempt must not hold its freeze any longer.
   * @throws what `confirm` throws.
   */
  async passed(confirm: Fence): Promise<void> {
    do {
      await this.#looks.recent();
      await this.#listing;
      await confirm();
      // That may have taken long.
    } while (this.#listing !== undefined || this.#looks.areOld);
  }

  /** Nothing is written before a look that begins after this call. */
  outdate(): void {
    this.#looks.outdate();
  }

  /**
   * Resolves after a look that begins from now on. Writes of other objects go on.
   * @throws as {@link passed}.
   */
  lookFromNow(): Promise<void> {
    return this.#looks.fromNow();
  }

  /** Waits for a write that is under way. Nothing is sent after that. */
  async end(): Promise<void> {
    this.#abort.abort();
    await this.#listing?.catch(() => undefined);
  }

  /** Nothing of this run rests on storedVersions, so it continues; but a prune by another client rested on less. */
  async report(before: CustomResourceDefinition): Promise<void> {
    const { client, emit, retrier, signal } = this.#context;
    const after = await retrier.run(() => findCrd(client, this.#crdName, { signal }), signal);
    if (!isClean(before) && after !== undefined && isClean(after)) {
      const message = `another client pruned storedVersions of "${this.#crdName}" while objects were being rewritten`;
      emit({ type: "warning", message });
    }
  }

  /**
   * Lists the storage version, and again where a newer state of the CRD was seen in which it is missing.
   * @throws {KsvmError} Conflict where objects waited longer than they could be written, by more than `--max-freeze-idle`; as {@link passed}.
   */
  async #list(): Promise<void> {
    const { clock, options, retrier, signal } = this.#context;
    const since = clock.monotonic();
    this.#waitedMs = Math.max(0, this.#waitedMs - (since - this.#listedAt));
    if (this.#waitedMs > options.maxFreezeIdleMs) {
      throw takenOutAgain(this.#crdName);
    }
    for (let attempt = 0; ; attempt++) {
      await this.#pace.turn(signal);
      // A read that begins now shows what became of all that was seen before, also after a restore of etcd.
      this.#missingAt = "";
      const { metadata } = await this.#listOnce();
      if (!isNewer(this.#missingAt, metadata.resourceVersion)) {
        this.#listedAt = clock.monotonic();
        this.#waitedMs += this.#listedAt - since;
        // At once: what is seen to be missing from here on is listed by another turn.
        this.#listing = undefined;
        return;
      }
      // Nothing is written until then: that counts as any other wait.
      await retrier.pause(takenOutAgain(this.#crdName), { attempt, since }, signal);
    }
  }

  async #listOnce(): Promise<CustomResourceDefinition> {
    const { emit } = this.#context;
    let found: CustomResourceDefinition | undefined;
    const listed = await updateCrd(this.#context, this.#crdName, (crd) => {
      found = isStorageVersionListed(crd) ? undefined : crd;
      if (found !== undefined && !hasFreezeAnnotation(crd)) {
        throw freezeLifted(this.#crdName);
      }
      const owner = crd.metadata.annotations?.[OWNER_ANNOTATION];
      if (found !== undefined && owner === undefined) {
        throw ownershipLost(crd);
      }
      // As it is: that it is written counts, and not what.
      return found === undefined || owner === undefined ? undefined : { [OWNER_ANNOTATION]: owner };
    }).catch((error: unknown) => {
      const what =
        "another client took the storage version out of storedVersions, and the API server does not list it again";
      throw besidesObjects(this.#crdName, what, error);
    });
    const unlisted = unlistedStorage(listed);
    if (unlisted !== undefined) {
      throw unlisted;
    }
    if (found !== undefined) {
      const [storage, left] = [storageVersionOf(found), storedVersionsOf(found).join(",")];
      const what = `another client set storedVersions of "${this.#crdName}" to [${left}], without the storage version "${storage}"`;
      emit({ type: "warning", message: `${what}; it is listed again` });
    }
    return listed;
  }
}

function takenOutAgain(crdName: string): KsvmError {
  const what = "another client takes the storage version out of storedVersions again and again";
  return new KsvmError("Conflict", `Cannot continue with "${crdName}": ${what}`);
}

/** The error where storedVersions lacks the storage version of a CRD, so that no object may be written; `undefined` where it does not. */
export function unlistedStorage(crd: CustomResourceDefinition): KsvmError | undefined {
  if (isStorageVersionListed(crd)) {
    return undefined;
  }
  const what = `storedVersions is [${storedVersionsOf(crd).join(",")}], without the storage version "${storageVersionOf(crd)}"`;
  const advice = "an update of the CRD, such as a new label, has the API server list it; then run again";
  return new KsvmError("ResourceNotMigratable", `Cannot write objects of "${crd.metadata.name}": ${what}; ${advice}`);
}
