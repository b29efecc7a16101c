import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import tap from "tap";
import { type Fetch, imageNameOf, pinImages } from "../../tools/image-digest.ts";

// A stand-in for registries: tests reach none.

const INDEX = '{"schemaVersion":2,"manifests":[]}';
const DIGEST = `sha256:${createHash("sha256").update(INDEX).digest("hex")}`;
const TYPE = { "content-type": "application/vnd.oci.image.index.v1+json" };
const dockerfile = readFileSync(new URL("../../Dockerfile", import.meta.url), "utf8");

await tap.test("imageNameOf() reads names as Docker does", async (t) => {
  t.same(imageNameOf("node:24-slim"), { registry: "registry-1.docker.io", repository: "library/node", tag: "24-slim" });
  t.same(imageNameOf("a/b"), { registry: "registry-1.docker.io", repository: "a/b", tag: "latest" });
  t.same(imageNameOf("localhost:5000/a"), { registry: "localhost:5000", repository: "a", tag: "latest" });
  t.same(imageNameOf(`gcr.io/a/b:c@sha256:${"0".repeat(64)}`), { registry: "gcr.io", repository: "a/b", tag: "c" });
});

await tap.test("pinImages() pins what registries answer, also behind a token, and pins again", async (t) => {
  const asked: string[] = [];
  const get: Fetch = async (url, headers) => {
    asked.push(url);
    if (url.startsWith("https://auth.example.com/")) return Response.json({ token: "secret" });
    if (url.startsWith("https://registry-1.docker.io/") && headers["authorization"] !== "Bearer secret") {
      const challenge =
        'Bearer realm="https://auth.example.com/token",service="s",scope="repository:library/node:pull"';
      return new Response("", { status: 401, headers: { "www-authenticate": challenge } });
    }
    return new Response(INDEX, { headers: { ...TYPE, "docker-content-digest": DIGEST } });
  };
  const pinned = await pinImages(dockerfile, get);
  const images = [...pinned.matchAll(/^FROM (\S+)/gm)].map(([, image]) => image);
  t.equal(images.length, 2);
  for (const image of images) t.match(image, new RegExp(`@${DIGEST}$`));
  t.equal(pinned.replaceAll(`@${DIGEST}`, ""), dockerfile.replaceAll(/@sha256:[0-9a-f]{64}/g, ""));
  t.equal(await pinImages(pinned, get), pinned);
  t.ok(asked.includes("https://auth.example.com/token?service=s&scope=repository%3Alibrary%2Fnode%3Apull"));
});

for (const [what, answer, message] of [
  ["that does not know the tag", () => new Response("", { status: 404 }), /answered 404/],
  [
    "that answers a page of a proxy",
    () => new Response("<html>", { headers: { "content-type": "text/html" } }),
    /text\/html/,
  ],
  [
    "whose digest is not that of its answer",
    () => new Response(INDEX, { headers: { ...TYPE, "docker-content-digest": `sha256:${"0".repeat(64)}` } }),
    /says sha256:0/,
  ],
] as const) {
  await tap.test(`pinImages() writes no digest of a registry ${what}`, async (t) => {
    await t.rejects(
      pinImages(dockerfile, async () => answer()),
      { message },
    );
  });
}
