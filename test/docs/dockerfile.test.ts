import { readFileSync } from "node:fs";
import tap from "tap";

function read(path: string): string {
  return readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");
}

const dockerfile = read("Dockerfile");
const { bin } = JSON.parse(read("package.json")) as { readonly bin: Readonly<Record<string, string>> };

await tap.test("the image runs the program that the package names, as an unprivileged user", async (t) => {
  t.match(dockerfile, new RegExp(`^ENTRYPOINT \\["/nodejs/bin/node", "/app/${bin["ksvm"]}"\\]$`, "m"));
  t.match(dockerfile, /^USER 65532:65532$/m);
  // Behind each tag a digest may stand, as `make pin-images` reads it.
  const images = [...dockerfile.matchAll(/^FROM (\S+?)(@sha256:[0-9a-f]{64})?(?: AS \w+)?$/gm)].map(
    ([, image]) => image,
  );
  t.same(images, ["node:24-slim", "gcr.io/distroless/nodejs24-debian13:nonroot"]);
  const runtime = dockerfile.slice(dockerfile.lastIndexOf("FROM "));
  t.notMatch(runtime, /^RUN /m, "there is no shell to run anything");
  const ignored = read(".dockerignore");
  const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.*) \S+$/gm)].flatMap(([, sources = ""]) =>
    sources.split(" "),
  );
  for (const source of copied) {
    t.match(ignored, new RegExp(`^!${source.replaceAll(".", "\\.")}$`, "m"), source);
  }
});

await tap.test("the modes of the image's files do not depend on the umask of the checkout", async (t) => {
  const last = dockerfile.lastIndexOf("FROM ");
  const copies = dockerfile.slice(last).match(/^COPY .*$/gm) ?? [];
  t.ok(copies.length > 0);
  for (const copy of copies) t.match(copy, /^COPY --(from=build|chmod=0644) /, copy);
  const commands = dockerfile.slice(0, last).match(/^(COPY|RUN) .*$/gm) ?? [];
  t.match(commands.at(-1), /^RUN .*chmod -R u=rwX,go=rX \.$/, "after the last file of the build stage");
});
