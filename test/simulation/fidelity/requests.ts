import { storageVersionHashOf } from "../../crd.ts";
import {
  APPLY_PATCH,
  collectionPath,
  CRDS,
  JSON_PATCH,
  MERGE_PATCH,
  objectPath,
  type Resource,
} from "../../api-client.ts";
import { type CrdShape, GROUP, versionsOf } from "../../integration/crd-fixture.ts";
import type { Play } from "./play.ts";
import type { Answer, Json, LineRequest } from "./world.ts";

type Query = LineRequest["query"];

/** A create. */
export function post(path: string, body: unknown, query: Query = {}): LineRequest {
  return { method: "POST", path, body, query };
}

/** A read, of one object or of a list. */
export function get(path: string, more: Omit<Partial<LineRequest>, "method" | "path"> = {}): LineRequest {
  return { method: "GET", path, ...more };
}

/** A merge patch. */
export function merge(path: string, body: unknown, query: Query = {}): LineRequest {
  return { method: "PATCH", path, body, query, contentType: MERGE_PATCH };
}

/** A server-side apply. */
export function apply(path: string, body: unknown, query: Query = {}): LineRequest {
  return { method: "PATCH", path, body, query: { fieldManager: "ksvm-rewrite", ...query }, contentType: APPLY_PATCH };
}

/** A JSON patch. */
export function jsonPatch(path: string, body: unknown, query: Query = {}): LineRequest {
  return { method: "PATCH", path, body, query, contentType: JSON_PATCH };
}

/** A deletion, as ksvm sends it. */
export function remove(
  path: string,
  preconditions?: { readonly uid?: string; readonly resourceVersion?: string },
): LineRequest {
  const body = { apiVersion: "v1", kind: "DeleteOptions", ...(preconditions === undefined ? {} : { preconditions }) };
  return { method: "DELETE", path, body };
}

export const crdPath = (name: string): string => objectPath(CRDS, { name });
export const CRD_COLLECTION = collectionPath(CRDS);

/** A CRD of one scenario, and paths of its objects. Names are fixed: each world begins empty. */
export class Subject {
  readonly plural: string;
  readonly kind: string;
  readonly name: string;

  constructor(word: string) {
    this.plural = `${word}s`;
    this.kind = word.charAt(0).toUpperCase() + word.slice(1);
    this.name = `${this.plural}.${GROUP}`;
  }

  get path(): string {
    return crdPath(this.name);
  }

  manifest(shape: CrdShape): Json {
    const { kind, name, plural } = this;
    const { annotations, scope = "Namespaced" } = shape;
    return {
      apiVersion: "apiextensions.k8s.io/v1",
      kind: "CustomResourceDefinition",
      metadata: { name, ...(annotations === undefined ? {} : { annotations }) },
      spec: {
        group: GROUP,
        scope,
        names: { plural, singular: kind.toLowerCase(), kind, listKind: `${kind}List` },
        versions: versionsOf(shape),
      },
    };
  }

  /** A change of `spec.versions`. */
  setVersions(shape: CrdShape): LineRequest {
    return merge(this.path, { spec: { versions: versionsOf(shape) } });
  }

  create(shape: CrdShape): LineRequest {
    return post(CRD_COLLECTION, this.manifest(shape));
  }

  resource(version: string): Resource {
    return { group: GROUP, version, resource: this.plural };
  }

  /** All objects, over all namespaces. */
  all(version: string): string {
    return collectionPath(this.resource(version));
  }

  /** Those of the default namespace. */
  own(version: string): string {
    return collectionPath(this.resource(version), "default");
  }

  at(version: string, name: string): string {
    return objectPath(this.resource(version), { name, namespace: "default" });
  }

  object(version: string, name: string, more: Json = {}): Json {
    return {
      ...this.identity(version, { name, namespace: "default", ...more.metadata }),
      spec: { size: 1 },
      ...without(more, "metadata"),
    };
  }

  /** What a write names that owns no field. */
  identity(version: string, metadata: Json): Json {
    return { apiVersion: `${GROUP}/${version}`, kind: this.kind, metadata };
  }
}

function without(value: Json, key: string): Json {
  return Object.fromEntries(Object.entries(value as object).filter(([name]) => name !== key));
}

/** The metadata of an answer. */
export function metadataOf({ body }: Answer): Json {
  return body.metadata;
}

/** uid and resourceVersion of an answer, as preconditions of a write. */
export function stateOf({ body }: Answer): { readonly uid: string; readonly resourceVersion: string } {
  const { resourceVersion, uid } = body.metadata;
  return { uid, resourceVersion };
}

export function isEstablished({ body }: Answer): boolean {
  const conditions: readonly { readonly type: string; readonly status: string }[] = body.status?.conditions ?? [];
  return conditions.some(({ status, type }) => type === "Established" && status === "True");
}

/** Longer than a handler lags behind discovery. */
export const HANDLER_LAG_MS = 1_000;

/** Creates a CRD and waits until its objects can be written in every served version. */
export async function createSubject(play: Play, word: string, shape: CrdShape): Promise<Subject> {
  const subject = new Subject(word);
  await play.line(`create the CRD of ${subject.plural}`, subject.create(shape), {
    pick: () => "as in the scenario of a CRD",
  });
  await play.wait("the CRD is established", get(subject.path), isEstablished);
  await served(play, subject, shape);
  return subject;
}

/** Changes the storage version and waits until writes land in it. */
export async function changeStorage(play: Play, subject: Subject, shape: CrdShape): Promise<void> {
  const title = `${shape.storage} becomes the storage version of ${subject.plural}`;
  await play.line(title, subject.setVersions(shape), { pick: ({ status }) => status.storedVersions as unknown });
  await served(play, subject, shape);
}

/** Waits until the API servers show a shape, and act by it. */
export async function served(play: Play, subject: Subject, shape: CrdShape): Promise<void> {
  const { storage, unserved = [], versions = ["v1alpha1", "v1"] } = shape;
  const hash = storageVersionHashOf(GROUP, storage, subject.kind);
  for (const version of versions) {
    const isServed = !unserved.includes(version);
    await play.wait(
      `discovery shows ${version} of ${subject.plural}`,
      get(`/apis/${GROUP}/${version}`),
      ({ body, status }) => {
        const listed = status === 200 ? (body.resources ?? []) : [];
        const found = listed.find((one: { readonly name: string }) => one.name === subject.plural);
        return isServed ? found?.storageVersionHash === hash : found === undefined;
      },
    );
    if (isServed) {
      await play.wait(
        `${version} is served`,
        get(subject.all(version), { query: { limit: 1 } }),
        ({ status }) => status === 200,
      );
    }
  }
  await play.world.pause(HANDLER_LAG_MS);
}

/** Creates objects, and compares only that it can be done. */
export async function createObjects(
  play: Play,
  subject: Subject,
  version: string,
  names: readonly string[],
): Promise<void> {
  for (const name of names) {
    const title = `create ${name} in ${version}`;
    await play.line(title, post(subject.own(version), subject.object(version, name)), {
      pick: ({ metadata }) => metadata as unknown,
    });
  }
}
