import type { ObjectMeta } from "../api/meta.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import type { Projection } from "../old/json/json-projection.ts";
import { projectedPages } from "../old/kube/list-projected.ts";
import { DEPLOYMENTS } from "../old/kube/resources.ts";

/** A Deployment of apps/v1, as far as it is looked at. */
export interface Deployment {
  readonly metadata: ObjectMeta;
  readonly spec: {
    readonly replicas?: number;
    readonly template: {
      readonly spec: {
        readonly containers: readonly {
          readonly name: string;
          readonly image?: string;
          readonly command?: readonly string[];
        }[];
      };
    };
  };
}

/** A Deployment that would migrate the same objects. */
export interface OtherMigrator {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** How it gives itself away. */
  readonly because: string;
}

/** Deployments on one page. */
const PAGE_SIZE = 40;
/** What is read of each: other clients may make them as large as an object may be. */
const DEPLOYMENT_FIELDS: Projection = {
  fields: {
    metadata: {
      fields: {
        name: "all",
        namespace: "all",
        uid: "all",
        labels: { fields: { "app.kubernetes.io/name": "all", "app.kubernetes.io/component": "all" } },
      },
    },
    spec: {
      fields: {
        replicas: "all",
        template: {
          fields: {
            spec: { fields: { containers: { items: { fields: { name: "all", image: "all", command: "all" } } } } },
          },
        },
      },
    },
  },
};

/** https://github.com/kubernetes-sigs/kube-storage-version-migrator/tree/master/manifests */
const ORIGINAL_IMAGES = [
  "storage-version-migration-migrator",
  "storage-version-migration-trigger",
  "kube-storage-version-migrator",
];
const ORIGINAL_NAMES = ["migrator", "trigger"];

/**
 * Finds every other migrator or trigger that is active, in all namespaces.
 * @param namespace where this program's own controller may be
 * @throws {ApiError}
 */
export async function findOtherMigrators(
  client: ApiClient,
  namespace: string,
  options: CallOptions = {},
): Promise<readonly OtherMigrator[]> {
  const found: OtherMigrator[] = [];
  const list = { limit: PAGE_SIZE, projection: DEPLOYMENT_FIELDS, ...options };
  for await (const { items } of projectedPages(client.transport, DEPLOYMENTS, list)) {
    found.push(...items.flatMap((deployment) => otherMigratorOf(deployment as Deployment, namespace) ?? []));
  }
  return found;
}

/**
 * Deletes one that was found; its pods go with it.
 * @throws {ApiError} Conflict where another Deployment has taken its name by now.
 */
export async function removeOtherMigrator(
  client: ApiClient,
  { namespace, name, uid }: OtherMigrator,
  options: CallOptions = {},
): Promise<void> {
  await client.delete(DEPLOYMENTS, { namespace, name }, { preconditions: { uid }, ...options });
}

/** What makes a Deployment another migrator; `undefined` where it is none, or scaled to none. */
export function otherMigratorOf(deployment: Deployment, ownNamespace: string): OtherMigrator | undefined {
  const { metadata, spec } = deployment;
  const { name, namespace = "", uid } = metadata;
  const because = isOwnElsewhere(deployment, ownNamespace)
    ? `it is a controller of ksvm in another namespace than "${ownNamespace}"`
    : originalOf(deployment);
  return because === undefined || spec.replicas === 0 ? undefined : { namespace, name, uid, because };
}

function isOwnElsewhere({ metadata: { labels = {}, namespace } }: Deployment, ownNamespace: string): boolean {
  const isController =
    labels["app.kubernetes.io/name"] === "ksvm" && labels["app.kubernetes.io/component"] === "controller";
  return isController && namespace !== ownNamespace;
}

/**
 * Its images have names of their own. Where a user built them again, the names of its manifests and programs are left.
 */
function originalOf({ metadata, spec }: Deployment): string | undefined {
  for (const { image = "", command = [], name } of spec.template.spec.containers) {
    if (ORIGINAL_IMAGES.includes(lastPart(image))) {
      return `it runs image "${image}"`;
    }
    const isNamedSo = ORIGINAL_NAMES.includes(metadata.name) && name === metadata.name;
    if (isNamedSo && [lastPart(image), lastPart(command[0] ?? "")].includes(metadata.name)) {
      return `it runs "${metadata.name}" of kube-storage-version-migrator`;
    }
  }
  return undefined;
}

/** The last part of a path, without the tag and the digest of an image. */
function lastPart(path: string): string {
  return /([^/@:]*)(:[^/@]*)?(@.*)?$/.exec(path)?.[1] ?? "";
}
