import { everyItem } from "../inventory/inventory.ts";
import type { Client } from "../kube/client.ts";
import { collectionPath, type KubeObject, objectPath } from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";

/** A Deployment of apps/v1, as far as it is looked at. */
export interface Deployment extends KubeObject {
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

const DEPLOYMENTS = { group: "apps", version: "v1", plural: "deployments" };
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
  client: Client,
  namespace: string,
  signal: AbortSignal,
): Promise<readonly OtherMigrator[]> {
  const found: OtherMigrator[] = [];
  for await (const deployment of everyItem<Deployment>(client, collectionPath(DEPLOYMENTS), signal)) {
    const other = otherMigratorOf(deployment, namespace);
    if (other !== undefined) found.push(other);
  }
  return found;
}

/**
 * Deletes one that was found; its pods go with it.
 * @throws {ApiError} a conflict where another Deployment has taken its name by now
 */
export async function removeOtherMigrator(client: Client, other: OtherMigrator, signal: AbortSignal): Promise<void> {
  const options = { preconditions: { uid: other.uid }, signal };
  await retry(client, () => client.delete(objectPath(DEPLOYMENTS, other), options), { signal });
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
