import { createHash } from "node:crypto";

/** An image as `FROM` names it, without a digest. */
export interface ImageName {
  readonly registry: string;
  readonly repository: string;
  readonly tag: string;
}

/** Asks a registry. @default that of Node */
export type Fetch = (url: string, headers: Readonly<Record<string, string>>) => Promise<Response>;

const MANIFEST_TYPES = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
];
const TIMEOUT_MS = 30_000;

/** Reads the name of an image as Docker does: without a registry it is one of Docker Hub. */
export function imageNameOf(text: string): ImageName {
  const [name = "", tag = "latest"] = text.replace(/@sha256:[0-9a-f]{64}$/, "").split(/:(?=[^/:]+$)/);
  const [first = "", ...rest] = name.split("/");
  if (rest.length > 0 && /[.:]/.test(first)) {
    return { registry: first, repository: rest.join("/"), tag };
  }
  return { registry: "registry-1.docker.io", repository: rest.length > 0 ? name : `library/${name}`, tag };
}

/**
 * The digest of what a registry answers for a tag, for all platforms of it. It is computed from the answer: a digest that a header
 * merely claims is not taken.
 *
 * https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#pulling-manifests
 * @throws {Error} where the registry does not answer, or answers no index of an image
 */
export async function readDigest(image: ImageName, get: Fetch = getFromRegistry): Promise<string> {
  const { registry, repository, tag } = image;
  const url = `https://${registry}/v2/${repository}/manifests/${tag}`;
  const accept = { accept: MANIFEST_TYPES.join(", ") };
  let answer = await get(url, accept);
  if (answer.status === 401) {
    const token = await readToken(answer.headers.get("www-authenticate") ?? "", get);
    answer = await get(url, { ...accept, authorization: `Bearer ${token}` });
  }
  const body = Buffer.from(await answer.arrayBuffer());
  const type = answer.headers.get("content-type")?.split(";")[0] ?? "";
  if (answer.status !== 200 || !MANIFEST_TYPES.includes(type)) {
    throw new Error(`Cannot read the digest of ${repository}:${tag}: ${registry} answered ${answer.status} (${type})`);
  }
  const digest = `sha256:${createHash("sha256").update(body).digest("hex")}`;
  const claimed = answer.headers.get("docker-content-digest") ?? digest;
  if (claimed !== digest) {
    throw new Error(`Cannot pin ${repository}:${tag}: ${registry} says ${claimed}, and its answer is ${digest}`);
  }
  return digest;
}

/** Puts the digest of each image behind its tag. Stages that are built here have none. */
export async function pinImages(dockerfile: string, get: Fetch = getFromRegistry): Promise<string> {
  const pinned = new Map<string, string>();
  for (const [, image = ""] of dockerfile.matchAll(/^FROM (\S+)/gm)) {
    pinned.set(image, `${image.replace(/@.*$/, "")}@${await readDigest(imageNameOf(image), get)}`);
  }
  return dockerfile.replaceAll(/^FROM (\S+)/gm, (_, image: string) => `FROM ${pinned.get(image)}`);
}

/** https://distribution.github.io/distribution/spec/auth/token/ */
async function readToken(challenge: string, get: Fetch): Promise<string> {
  const part = (name: string): string => new RegExp(`${name}="([^"]*)"`).exec(challenge)?.[1] ?? "";
  const url = `${part("realm")}?service=${encodeURIComponent(part("service"))}&scope=${encodeURIComponent(part("scope"))}`;
  const answer = await get(url, {});
  const { token, access_token: other } = (await answer.json()) as { token?: string; access_token?: string };
  return token ?? other ?? "";
}

function getFromRegistry(url: string, headers: Readonly<Record<string, string>>): Promise<Response> {
  return fetch(url, { headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
}
