import { type CustomResourceDefinition, storageVersionOf } from "../../api/crd.ts";

/** The label that the harmless half of the proof pretends to set. It is never stored. */
export const PROBE_LABEL = "ksvm.sigs.k8s.io/freeze-probe";

/** Name of the version that a CRD with one version pretends to switch to. It is never stored. */
export const PROBE_VERSION = "v0ksvmprobe";

/** An operation of a JSON patch (RFC 6902). */
type Operation =
  | { readonly op: "add"; readonly path: string; readonly value: unknown }
  | { readonly op: "copy"; readonly from: string; readonly path: string };

/**
 * A JSON patch that changes the storage version, for a dry-run that the guard must deny. The schemas of a CRD can be large;
 * none of them is in it.
 */
export function storageChangePatch(crd: CustomResourceDefinition): readonly Operation[] {
  const storage = storageVersionOf(crd);
  const from = crd.spec.versions.findIndex(({ name }) => name === storage);
  const to = crd.spec.versions.findIndex(({ name }) => name !== storage);
  return to === -1
    ? [atResourceVersion(crd), ...addVersion(crd.spec.versions.length), ...moveStorage(from, crd.spec.versions.length)]
    : [atResourceVersion(crd), ...moveStorage(from, to)];
}

/** A JSON patch that changes a label, for a dry-run that must pass: a guard that denies everything proves nothing. */
export function labelChangePatch(crd: CustomResourceDefinition): readonly Operation[] {
  const { labels = {} } = crd.metadata;
  return [atResourceVersion(crd), add("/metadata/labels", { ...labels, [PROBE_LABEL]: "true" })];
}

function moveStorage(from: number, to: number): readonly Operation[] {
  return [add(`/spec/versions/${from}/storage`, false), add(`/spec/versions/${to}/storage`, true)];
}

/** A version like the first one, at the end. */
function addVersion(index: number): readonly Operation[] {
  return [
    { op: "copy", from: "/spec/versions/0", path: `/spec/versions/${index}` },
    add(`/spec/versions/${index}/name`, PROBE_VERSION),
    add(`/spec/versions/${index}/served`, false),
  ];
}

/** An API server answers 409 where the CRD was written since it was read. */
function atResourceVersion({ metadata }: CustomResourceDefinition): Operation {
  return add("/metadata/resourceVersion", metadata.resourceVersion);
}

/** Of a member that exists this replaces the value. */
function add(path: string, value: unknown): Operation {
  return { op: "add", path, value };
}
