import type { ApiClient, KubeObject } from "../old/kube/client.ts";
import { isInvalid } from "../old/kube/errors.ts";
import { APPLY_PATCH, MERGE_PATCH, type Resource } from "../old/kube/resources.ts";
import { isAsWanted } from "../old/kube/drift.ts";

/** The field manager of what is kept in force. It is not that of the runs, which own the guards of single CRDs. */
export const KEEPER_FIELD_MANAGER = "ksvm-webhook-configuration";

/** An object that is kept: a name, and the fields that are wanted. */
export type WantedObject = KubeObject & { readonly metadata: { readonly name: string } };

/** Fields that one manager applies. */
export interface AppliedPart {
  readonly fieldManager: string;
  readonly fields: WantedObject;
}

/** What an {@link ObjectWriter} needs. */
export interface ObjectWriterOptions {
  readonly client: ApiClient;
  readonly resource: Resource;
  readonly name: string;
  /** What is applied, one after the other, over what is there, until that is as it is wanted. @default all that is wanted, as {@link KEEPER_FIELD_MANAGER} */
  readonly parts?: ((wanted: WantedObject, live: KubeObject | undefined) => readonly AppliedPart[]) | undefined;
  /** Whether the fields of an object that is as wanted have the managers that they are to have. @default they have */
  readonly isOwned?: ((live: KubeObject, wanted: WantedObject) => boolean) | undefined;
  /** The body of a merge patch that takes out of the live object what was added to it. */
  readonly replacement: (live: KubeObject, wanted: WantedObject) => object;
}

/** Writes one object that is kept, always on top of what was read: Conflict means that another client wrote in between. */
export class ObjectWriter {
  readonly #options: ObjectWriterOptions;

  constructor(options: ObjectWriterOptions) {
    this.#options = options;
  }

  /** Whether an object is as it is wanted, and owned as it is to be. */
  isKept(live: KubeObject | undefined, wanted: WantedObject): boolean {
    const { isOwned } = this.#options;
    return live !== undefined && isAsWanted(live, wanted) && (isOwned?.(live, wanted) ?? true);
  }

  /**
   * Applies what is wanted.
   * @returns what the object then is; with additions of others it may still not be as it is wanted
   */
  async apply(wanted: WantedObject, found: KubeObject | undefined, signal: AbortSignal): Promise<KubeObject> {
    const { parts = allAtOnce } = this.#options;
    let live = found;
    try {
      for (const part of parts(wanted, found)) {
        if (!this.isKept(live, wanted)) {
          live = await this.applyPart(part, live, signal);
        }
      }
    } catch (error) {
      // What is wanted and what another client added can be invalid together, such as a url beside a service.
      if (live === undefined || !isInvalid(error)) {
        throw error;
      }
    }
    return live ?? wanted;
  }

  /** Applies the fields of one manager alone. */
  applyPart(
    { fieldManager, fields }: AppliedPart,
    live: KubeObject | undefined,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    const { client, resource, name } = this.#options;
    const { resourceVersion, uid } = live?.metadata ?? {};
    const body = live === undefined ? fields : { ...fields, metadata: { ...fields.metadata, uid, resourceVersion } };
    const options = { fieldManager, force: true, signal };
    return client.patch<KubeObject>(resource, { name }, { type: APPLY_PATCH, body }, options);
  }

  /** Puts what is wanted in the place of what is there: server-side apply leaves alone what others added. */
  replace(live: KubeObject, wanted: WantedObject, signal: AbortSignal): Promise<KubeObject> {
    return this.#merge(live, this.#options.replacement(live, wanted), signal);
  }

  /** Changes annotations, and nothing else. */
  annotate(
    live: KubeObject,
    annotations: Readonly<Record<string, string | null>>,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    return this.#merge(live, { metadata: { annotations } }, signal);
  }

  #merge(live: KubeObject, change: { readonly metadata?: object }, signal: AbortSignal): Promise<KubeObject> {
    const { client, resource, name } = this.#options;
    // What is carried over of the live object may have changed in between: then the resourceVersion refuses the write.
    const { resourceVersion } = live.metadata;
    const body = { ...change, metadata: { ...change.metadata, resourceVersion } };
    const options = { fieldManager: KEEPER_FIELD_MANAGER, signal };
    return client.patch<KubeObject>(resource, { name }, { type: MERGE_PATCH, body }, options);
  }
}

function allAtOnce(fields: WantedObject): readonly AppliedPart[] {
  return [{ fieldManager: KEEPER_FIELD_MANAGER, fields }];
}
