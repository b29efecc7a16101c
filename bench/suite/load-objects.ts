import { randomUUID } from "node:crypto";
import type { Cluster } from "../../test/integration/cluster.ts";
import { GROUP, type TestKind } from "../../test/integration/crd-fixture.ts";
import { putEntries } from "../etcd-writer.ts";

/** Makes objects of 2 KB by writing them to etcd, as copies of one that an API server stored. */
export async function loadObjects({ api, controlPlane }: Cluster, kind: TestKind, count: number): Promise<void> {
  const template = kind.object("template", "v1alpha1");
  await api.create(kind.resource("v1alpha1"), { ...template, spec: { text: "x".repeat(1_500) } });
  const prefix = `/registry/${GROUP}/${kind.plural}/default/`;
  const entry = await controlPlane.stored.readKey(`${prefix}template`);
  if (entry === undefined) throw new Error("Cannot copy an object: it is not in etcd");
  const text = entry.value.toString();
  const { uid } = (JSON.parse(text) as { metadata: { uid: string } }).metadata;
  function* entries(): Generator<readonly [string, string]> {
    for (let index = 0; index < count; index++) {
      const name = `o${String(index).padStart(7, "0")}`;
      yield [`${prefix}${name}`, text.replace('"name":"template"', `"name":"${name}"`).replace(uid, randomUUID())];
    }
  }
  await putEntries(controlPlane.etcd.url, entries());
  await api.delete(kind.resource("v1alpha1"), { namespace: "default", name: "template" });
}
