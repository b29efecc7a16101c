import t from "tap";
import { MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import { caBundleOf } from "../../src/certs/ca-bundle.ts";
import { issueCa, issueServing } from "../../src/certs/issue.ts";
import { CRDS, MERGE_PATCH, SECRETS } from "../../src/kube/resources.ts";
import {
  createNamespace,
  FLAGS,
  installOwn,
  NAMESPACE,
  readTheSecret,
  serveFromSecret,
  serveOnFreshConnections,
} from "./certs-fixture.ts";
import { Cluster, eventually } from "./cluster.ts";
import { TestKind, versionsOf } from "./crd-fixture.ts";
import { createFrozen, sendStorageChange, StorageChangeLoad, untilDenied } from "./storage-change-load.ts";

const cluster = await Cluster.start(t, { apiservers: 2 });
const { api, controlPlane } = cluster;
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) {
  throw new Error("two API servers were asked for");
}
await createNamespace(api);

async function messageOfChange(crd: { readonly name: string }): Promise<string> {
  const { body } = await sendStorageChange(controlPlane, crd);
  return (body as { message?: string }).message ?? "";
}

await t.test(
  "cert-manager as the source, its own CRD frozen, the certificate expired: the way out is open",
  async (t) => {
    const group = "cert-manager.io";
    const name = `certificates.${group}`;
    const manifest = (storage: string) => ({
      apiVersion: "apiextensions.k8s.io/v1",
      kind: "CustomResourceDefinition",
      metadata: { name, annotations: { [MIGRATING_ANNOTATION]: "true" } },
      spec: {
        group,
        scope: "Namespaced",
        names: { plural: "certificates", singular: "certificate", kind: "Certificate", listKind: "CertificateList" },
        versions: versionsOf({ versions: ["v1alpha2", "v1"], storage }),
      },
    });
    // What cert-manager's own Secret is to us: pairs that another program issues and renews.
    const ca = await issueCa({ now: new Date(), lifetimeMs: 3_600_000 });
    const names = { dnsNames: ["localhost"], ipAddresses: ["127.0.0.1"] };
    const fill = async (lifetimeMs: number): Promise<Record<string, string>> => {
      const { certPem, keyPem } = await issueServing({ ca, now: new Date(), lifetimeMs, ...names });
      const texts = { "ca.crt": ca.certPem, "tls.crt": certPem, "tls.key": keyPem };
      return Object.fromEntries(
        Object.entries(texts).map(([key, text]) => [key, Buffer.from(text).toString("base64")]),
      );
    };
    const metadata = { namespace: NAMESPACE, name: "by-cert-manager" };
    const secret = { apiVersion: "v1", kind: "Secret", type: "kubernetes.io/tls", metadata };
    await api.create(CRDS, manifest("v1"));
    await api.create(SECRETS, { ...secret, data: await fill(8_000) });
    const webhook = await serveFromSecret(t, cluster, {
      secret: metadata.name,
      // A connection that is open outlives the certificate.
      serve: serveOnFreshConnections(() => undefined),
    });
    await eventually(async () => webhook.certificate.current !== undefined, "it is served");
    await webhook.register(Buffer.from(ca.certPem).toString("base64"));
    const frozen = { name };
    await untilDenied(cluster, frozen);
    await eventually(async () => webhook.certificate.unusable() !== undefined, "it expired", 30_000);

    await eventually(async () => /expired/.test(await messageOfChange(frozen)), "API servers refuse it");
    const label = { type: MERGE_PATCH, body: { metadata: { labels: { one: "one" } } } };
    await t.resolves(api.patch(CRDS, frozen, label), "an ordinary update of the frozen CRD passes");
    const described = manifest("v1").spec.versions.map((version) => ({
      ...version,
      deprecated: version.name !== "v1",
    }));
    const spec = { type: MERGE_PATCH, body: { spec: { versions: described } } };
    await t.resolves(api.patch(CRDS, frozen, spec), "so does one of its spec that keeps the storage version");
    const other = new TestKind("other");
    await cluster.createCrd(other, { storage: "v1alpha1" });
    await t.resolves(
      cluster.setVersions(other, { storage: "v1" }),
      "so does a storage change of a CRD that is not frozen",
    );

    const lift = { type: MERGE_PATCH, body: { metadata: { annotations: { [MIGRATING_ANNOTATION]: null } } } };
    await t.resolves(api.patch(CRDS, frozen, lift), "the freeze can be lifted");
    const run = await cluster.migrate([name, "--force", "--guard", "webhook", "--proof-timeout", "2s"]);
    t.equal(run.code, 1, run.stdout);
    t.match(run.stderr, /expired.*\[FreezeNotProven\]/);
    const crd = await cluster.crd(frozen);
    t.equal(crd.metadata.annotations?.[MIGRATING_ANNOTATION], undefined, "a migration that meets this unfreezes, too");
    t.equal((await sendStorageChange(controlPlane, frozen)).status, 200, "the provisioner's own upgrade goes through");

    // It renews its certificate then, and the guard is back without a restart.
    await api.patch(SECRETS, metadata, { type: MERGE_PATCH, body: { data: await fill(3_600_000) } });
    await eventually(async () => webhook.certificate.unusable() === undefined, "the new pair is served");
    await t.resolves(cluster.setVersions(frozen, { versions: ["v1alpha2", "v1"], storage: "v1" }));
    const again = await cluster.migrate([name, "--guard", "webhook"]);
    t.equal(again.code, 0, again.stderr);
  },
);

await t.test("an API server that does not show the new CA keeps it from being used", async (t) => {
  const webhook = await installOwn(t, cluster);
  const kind = await createFrozen(cluster, "frozen");
  await untilDenied(cluster, kind);
  const before = await readTheSecret(cluster);
  const rotate = (timeout: string) => {
    const endpoints = ["--apiserver-endpoints", `${first.url},${second.url}`];
    const replicas = ["--replica-endpoints", `127.0.0.1:${webhook.port}`];
    return cluster.ksvm(["certs", "rotate", "--now", ...FLAGS, ...endpoints, ...replicas, "--timeout", timeout]);
  };
  const load = StorageChangeLoad.start(t, cluster, [kind], 10);
  second.pause();
  t.teardown(() => second.resume());
  const stuck = await rotate("2s");
  t.equal(stuck.code, 1, stuck.stdout);
  t.match(stuck.stderr, new RegExp(`Cannot use the new CA yet: ${second.url}: .*\\[RotationStuck\\]\n$`));
  const during = await readTheSecret(cluster);
  t.equal(during.data?.["tls.crt"], before.data?.["tls.crt"], "the serving certificate is the old one");
  t.not(caBundleOf(during), caBundleOf(before), "the new CA is trusted besides");
  second.resume();
  const done = await rotate("60s");
  t.equal(done.code, 0, done.stderr);
  t.match(done.stdout, /^every API server shows the new CA/m);
  t.notMatch(done.stdout, "added a new CA", "the rotation that was begun went on");
  t.same((await load.stop()).others, []);
});
