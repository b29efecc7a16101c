import type { CrdVersion, CustomResourceDefinition } from "../crd.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import type { RequestOptions } from "../control-plane/control-plane.ts";

/** One update of a CRD, and whether a guard lets it through. */
export interface GuardCase {
  readonly name: string;
  /** What is on the CRD before the update. @default none */
  readonly annotations?: Readonly<Record<string, string>>;
  /** The update, made from the CRD as it is then. */
  readonly update: (crd: CustomResourceDefinition) => CrdUpdate;
  /** @default false */
  readonly isDenied?: boolean;
  /** The storage version that the update asks for. @default "v2" */
  readonly asksFor?: string;
}

/** A request to a CRD's path. */
export type CrdUpdate = RequestOptions & { readonly query?: string };

/** A CRD to create. */
export interface NewCrd {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly versions: readonly object[]; readonly [field: string]: unknown };
  readonly [field: string]: unknown;
}

type Edit = (versions: readonly CrdVersion[]) => readonly unknown[];

/** A CRD with two versions, v1 stored, that all cases start from. */
export function widgetCrd(group: string): NewCrd {
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `widgets.${group}` },
    spec: {
      group,
      scope: "Namespaced",
      names: { plural: "widgets", singular: "widget", kind: "Widget", listKind: "WidgetList" },
      versions: [version("v1", true), version("v2", false)],
    },
  };
}

/** The annotation that freezes. */
export const FROZEN = { [MIGRATING]: "true" };

/** A merge patch that makes v2 the storage version. */
export const flip = mergePatch(flipped);

/** The same, never stored. */
export const dryRunFlip: GuardCase["update"] = (crd) => ({ ...flip(crd), query: "?dryRun=All" });

/** Changes what no guard cares about. */
export const labelChange = metadataPatch({ labels: { team: "a" } });

/** What a user does to break the glass. */
export const unfreeze = metadataPatch({ annotations: { [MIGRATING]: null } });

/** The contract of both guards. */
export const GUARD_CASES: readonly GuardCase[] = [
  { name: "merge patch, storage change, not frozen", update: flip },
  { name: "merge patch, storage change", annotations: FROZEN, update: flip, isDenied: true },
  {
    name: "JSON patch, storage change",
    annotations: FROZEN,
    update: () => ({
      method: "PATCH",
      contentType: "application/json-patch+json",
      body: [
        { op: "replace", path: "/spec/versions/0/storage", value: false },
        { op: "replace", path: "/spec/versions/1/storage", value: true },
      ],
    }),
    isDenied: true,
  },
  { name: "PUT, storage change", annotations: FROZEN, update: put(flipped), isDenied: true },
  {
    name: "server-side apply, storage change",
    annotations: FROZEN,
    update: ({ metadata, spec }) => ({
      method: "PATCH",
      contentType: "application/apply-patch+yaml",
      query: "?fieldManager=contract&force=true",
      body: {
        apiVersion: "apiextensions.k8s.io/v1",
        kind: "CustomResourceDefinition",
        metadata: { name: metadata.name },
        spec: { ...spec, versions: flipped(spec.versions) },
      },
    }),
    isDenied: true,
  },
  {
    name: "storage change, the annotation empty",
    annotations: { [MIGRATING]: "" },
    update: flip,
    isDenied: true,
  },
  {
    name: 'storage change, the annotation "false"',
    annotations: { [MIGRATING]: "false" },
    update: flip,
    isDenied: true,
  },
  {
    name: "merge patch, storage change that takes the annotation off",
    annotations: FROZEN,
    update: mergePatch(flipped, { annotations: { [MIGRATING]: null } }),
    isDenied: true,
  },
  {
    name: "PUT, storage change without any annotations",
    annotations: FROZEN,
    update: (crd) => put(flipped)({ ...crd, metadata: { ...crd.metadata, annotations: {} } }),
    isDenied: true,
  },
  {
    name: "storage change to a version that is added",
    annotations: FROZEN,
    update: mergePatch((versions) => [...versions.map((v) => ({ ...v, storage: false })), version("v3", true)]),
    isDenied: true,
    asksFor: "v3",
  },
  { name: "the annotation taken off alone", annotations: FROZEN, update: unfreeze },
  {
    name: "the annotation put on with a storage change",
    update: mergePatch(flipped, { annotations: FROZEN }),
  },
  { name: "storage change beside another annotation", annotations: { "example.com/a": "b" }, update: flip },
  { name: "label change", annotations: FROZEN, update: labelChange },
  {
    name: "a version no longer served",
    annotations: FROZEN,
    update: mergePatch(([v1, v2]) => [v1, { ...v2, served: false }]),
  },
  {
    name: "a schema description",
    annotations: FROZEN,
    update: mergePatch(([v1, v2]) => [v1, { ...v2, ...schema("a widget") }]),
  },
  {
    name: "a version added",
    annotations: FROZEN,
    update: mergePatch((versions) => [...versions, version("v3", false)]),
  },
  { name: "a version removed that is not stored", annotations: FROZEN, update: mergePatch(([v1]) => [v1]) },
  { name: "the versions reordered", annotations: FROZEN, update: mergePatch((versions) => versions.toReversed()) },
  { name: "PUT without a change", annotations: FROZEN, update: put((versions) => versions) },
];

function mergePatch(edit: Edit, metadata: object = {}): GuardCase["update"] {
  return ({ spec }) => ({ method: "PATCH", body: { metadata, spec: { versions: edit(spec.versions) } } });
}

function metadataPatch(metadata: object): GuardCase["update"] {
  return () => ({ method: "PATCH", body: { metadata } });
}

function put(edit: Edit): GuardCase["update"] {
  return (crd) => ({ method: "PUT", body: { ...crd, spec: { ...crd.spec, versions: edit(crd.spec.versions) } } });
}

function flipped(versions: readonly CrdVersion[]): readonly CrdVersion[] {
  return versions.map((entry) => ({ ...entry, storage: entry.name === "v2" }));
}

/** A served version whose schema takes any object. */
export function version(name: string, storage: boolean): object {
  return { name, served: true, storage, ...schema("") };
}

function schema(description: string): object {
  const openAPIV3Schema = { type: "object", description, "x-kubernetes-preserve-unknown-fields": true };
  return { schema: { openAPIV3Schema } };
}
