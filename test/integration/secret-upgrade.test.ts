import t from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import type { SecretObject } from "../../src/certs/secret-contents.ts";
import { systemClock } from "../../src/clock.ts";
import { MERGE_PATCH, SECRETS, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Cluster } from "./cluster.ts";
import { applyBase, NAMESPACE, startAsServiceAccount } from "./installation.ts";
import { kubectlOf } from "./kubectl.ts";

const OLD = { namespace: NAMESPACE, name: "ksvm-webhook-tls" };
const NEW = { namespace: NAMESPACE, name: "ksvm-webhook-certificates" };

const cluster = await Cluster.start(t);
const { api } = cluster;
await applyBase(cluster);
const kubeconfig = await startAsServiceAccount(cluster, "storage-migrator-certificates");

function secret(ref: typeof OLD): Promise<SecretObject> {
  return api.get<SecretObject>(SECRETS, ref);
}

async function caBundle(): Promise<string | undefined> {
  const { webhooks } = await api.get<{ webhooks: { clientConfig: { caBundle?: string } }[] }>(WEBHOOK_CONFIGURATIONS, {
    name: WEBHOOK_NAME,
  });
  return webhooks[0]?.clientConfig.caBundle;
}

/** A Secret as earlier versions made it, and as the API server wants it. */
async function createOld(labels: Readonly<Record<string, string>>): Promise<void> {
  const data = { "tls.crt": "", "tls.key": "" };
  await api.create(SECRETS, {
    apiVersion: "v1",
    kind: "Secret",
    type: "kubernetes.io/tls",
    metadata: { ...OLD, labels },
    data,
  });
}

const asCertificates = ["--kubeconfig", kubeconfig];

await t.test(
  "the certificates of an earlier version are taken over as they are, and API servers trust the same CA",
  async (t) => {
    await createOld({});
    const earlier = await cluster.ksvm(["certs", "ensure", "--secret", OLD.name]);
    t.equal(earlier.code, 0, earlier.stderr);
    const [before, bundle] = [await secret(OLD), await caBundle()];
    t.equal(before.type, "kubernetes.io/tls");
    t.equal(bundle, before.data?.["ca.crt"]);
    t.same((await secret(NEW)).data ?? {}, {}, "the manifests hold it without data");

    const run = await cluster.ksvm(["certs", "ensure", ...asCertificates]);
    t.equal(run.code, 0, run.stderr);
    t.match(run.stdout, /took over the certificates of Secret "kube-storage-migration\/ksvm-webhook-tls"/);
    t.same((await secret(NEW)).data, before.data);
    t.equal((await secret(NEW)).type, "Opaque");
    t.equal(await caBundle(), bundle);
    t.same(await secret(OLD), before, "the old one stays, for a way back");

    const again = await cluster.ksvm(["certs", "ensure", ...asCertificates]);
    t.match(again, { code: 0, stdout: /^certificates are current/ });
  },
);

await t.test(
  "applying deploy/ again and again during a rotation leaves the Secret and the caBundle alone",
  async (t) => {
    const kubectl = await kubectlOf(cluster);
    const before = await secret(NEW);
    const stop = new AbortController();
    let applied = 0;
    const applying = (async () => {
      while (!stop.signal.aborted) {
        const how = applied % 2 === 0 ? ["--server-side"] : [];
        const { code, stderr } = await kubectl(["apply", ...how, "-k", "deploy/base"]);
        t.equal(code, 0, stderr);
        applied++;
      }
    })();
    let looks = 0;
    const looking = (async () => {
      while (!stop.signal.aborted) {
        const { data = {} } = await secret(NEW);
        for (const key of ["tls.crt", "tls.key", "ca.crt", "ca.key"]) {
          if ((data[key] ?? "") === "") t.fail(`${key} is gone`);
        }
        if (((await caBundle()) ?? "") === "") t.fail("the caBundle is gone");
        looks++;
        await systemClock.sleep(50);
      }
    })();
    const dwell = ["--apiserver-dwell", "10s", "--replica-dwell", "10s"];
    const run = await cluster.ksvm(["certs", "rotate", "--now", ...dwell, ...asCertificates]);
    stop.abort();
    await Promise.all([applying, looking]);
    t.equal(run.code, 0, run.stderr);
    t.ok(applied >= 2 && looks > 20, `${applied} times applied, ${looks} looks`);
    const after = await secret(NEW);
    t.not(after.data?.["ca.crt"], before.data?.["ca.crt"]);
    t.equal(await caBundle(), after.data?.["ca.crt"]);
  },
);

await t.test("certificates that another program keeps are not taken over", async (t) => {
  const foreign = (await secret(OLD)).data;
  await api.delete(SECRETS, OLD);
  await createOld({ "app.kubernetes.io/managed-by": "cert-manager" });
  await api.patch(SECRETS, OLD, { type: MERGE_PATCH, body: { data: foreign } });
  await api.delete(SECRETS, NEW);
  await applyBase(cluster);
  const run = await cluster.ksvm(["certs", "ensure", ...asCertificates]);
  t.equal(run.code, 0, run.stderr);
  t.notMatch(run.stdout, /took over/);
  t.not((await secret(NEW)).data?.["tls.crt"], foreign?.["tls.crt"]);
});
