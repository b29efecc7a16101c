import { type CrdVersion, type CustomResourceDefinition, storageVersionOf } from "../api/crd.ts";

/** The label that the harmless half of the proof pretends to set. It is never stored. */
export const PROBE_LABEL = "ksvm.sigs.k8s.io/freeze-probe";

/** Name of the version that a CRD with one version pretends to switch to. It is never stored. */
export const PROBE_VERSION = "v0ksvmprobe";

/** A merge patch that changes the storage version, for a dry-run that the guard must deny. */
export function storageChangePatch(crd: CustomResourceDefinition): unknown {
  return { metadata: { resourceVersion: crd.metadata.resourceVersion }, spec: { versions: changedVersions(crd) } };
}

/** A merge patch that changes a label, for a dry-run that must pass: a guard that denies everything proves nothing. */
export function labelChangePatch(crd: CustomResourceDefinition): unknown {
  return { metadata: { resourceVersion: crd.metadata.resourceVersion, labels: { [PROBE_LABEL]: "true" } } };
}

function changedVersions(crd: CustomResourceDefinition): readonly CrdVersion[] {
  const storage = storageVersionOf(crd);
  const { versions } = crd.spec;
  const other = versions.find(({ name }) => name !== storage);
  if (other !== undefined) {
    return versions.map((version) => ({ ...version, storage: version.name === other.name }));
  }
  return versions.flatMap((version) => [
    { ...version, storage: false },
    { ...version, name: PROBE_VERSION, served: false, storage: true },
  ]);
}
