import { KsvmError } from "../errors.ts";
import type { KubeObject } from "./kube/objects.ts";

/** `uid/generation`: another spec has another one, whatever it says, and so has another CRD of the same name. */
export function epochOf({ metadata }: Pick<KubeObject, "metadata">): string {
  return `${metadata.uid}/${metadata.generation ?? 0}`;
}

/** What an attempt rests on has changed. Nothing was pruned; another attempt begins at step 1. */
export class EpochChanged extends KsvmError {
  override readonly name = "EpochChanged";
  /** Of the CRD or the built-in resource. */
  readonly resource: string;

  constructor(resource: string, what: string) {
    super("StorageVersionChanged", `Cannot continue with "${resource}": ${what}; nothing was pruned`);
    this.resource = resource;
  }
}
