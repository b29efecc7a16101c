import tap from "tap";

import { type Deployment, otherMigratorOf } from "../../src/in-tree/other-migrators.ts";

const OWN = "kube-storage-migration";

interface Shape {
  readonly name?: string;
  readonly namespace?: string;
  readonly image?: string;
  readonly command?: readonly string[];
  readonly container?: string;
  readonly replicas?: number;
  readonly labels?: Readonly<Record<string, string>>;
}

function deployment({ name = "app", namespace = "default", image = "app", ...shape }: Shape): Deployment {
  const { command, container = "main", replicas, labels } = shape;
  return {
    metadata: { name, namespace, uid: "u1", resourceVersion: "1", ...(labels === undefined ? {} : { labels }) },
    spec: {
      ...(replicas === undefined ? {} : { replicas }),
      template: { spec: { containers: [{ name: container, image, ...(command === undefined ? {} : { command }) }] } },
    },
  };
}

const KSVM = { "app.kubernetes.io/name": "ksvm", "app.kubernetes.io/component": "controller" };

const cases: readonly [name: string, shape: Shape, isOther: boolean][] = [
  ["something else", { image: "r.example/app:v1" }, false],
  ["the original migrator", { image: "r.example:5000/k/storage-version-migration-migrator:v0.0.5" }, true],
  ["the original trigger by digest", { image: "r.example/storage-version-migration-trigger@sha256:0123" }, true],
  ["one that was scaled to none", { image: "storage-version-migration-migrator", replicas: 0 }, false],
  ["one with more replicas", { image: "storage-version-migration-migrator:v1", replicas: 2 }, true],
  ["a rebuilt image", { image: "r.example/kube-storage-version-migrator@sha256:0123" }, true],
  ["the names of its manifests", { name: "migrator", container: "migrator", image: "migrator" }, true],
  ["its program", { name: "trigger", container: "trigger", image: "r.example/own:1", command: ["/trigger"] }, true],
  ["a migrator of something else", { name: "migrator", container: "migrator", image: "r.example/flyway:9" }, false],
  ["a trigger beside others", { name: "ci", container: "trigger", image: "trigger" }, false],
  ["an image with a name like it", { image: "r.example/my-storage-version-migration-migrator:v1" }, false],
  ["our controller", { name: "ksvm-controller", namespace: OWN, labels: KSVM }, false],
  ["our controller elsewhere", { name: "ksvm-controller", namespace: "other", labels: KSVM }, true],
];

for (const [name, shape, isOther] of cases) {
  await tap.test(`otherMigratorOf() ${isOther ? "finds" : "passes over"} ${name}`, async (t) => {
    const found = otherMigratorOf(deployment(shape), OWN);
    t.equal(found !== undefined, isOther);
    if (isOther) {
      t.match(found, {
        name: shape.name ?? "app",
        namespace: shape.namespace ?? "default",
        uid: "u1",
        because: /^it /,
      });
    }
  });
}
