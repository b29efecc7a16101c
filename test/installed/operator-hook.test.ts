import t from "tap";
import { POLICIES, POLICY_BINDINGS } from "../api-client.ts";
import { Cluster } from "../integration/cluster.ts";
import { withPodsRunning } from "../integration/job-runner.ts";
import { shellOf } from "./admin-shell.ts";
import { ensureHelm } from "./helm.ts";

const programs = { helm: await ensureHelm() };
const GROUP = "stable.example.com";

/** Another owner rejects every update of one object. @returns takes the rule away */
async function rejectBackup({ api }: Cluster): Promise<() => Promise<void>> {
  const name = "reject-backup";
  const rule = { apiGroups: [GROUP], apiVersions: ["*"], resources: ["crontabs"], operations: ["UPDATE"] };
  const common = { apiVersion: "admissionregistration.k8s.io/v1", metadata: { name } };
  const validations = [{ expression: 'object.metadata.name != "backup"', message: "it stays as it is" }];
  const spec = { matchConstraints: { resourceRules: [rule] }, validations };
  await api.create(POLICIES, { ...common, kind: "ValidatingAdmissionPolicy", spec });
  const bound = { policyName: name, validationActions: ["Deny"] };
  await api.create(POLICY_BINDINGS, { ...common, kind: "ValidatingAdmissionPolicyBinding", spec: bound });
  return () => api.delete(POLICY_BINDINGS, { name }).then(() => undefined);
}

await t.test("a hook that fails stops the upgrade, and the next upgrade goes on where it was", async (t) => {
  const cluster = await Cluster.start(t);
  const shell = await shellOf(t, cluster, programs);
  const mustRun = async (command: string): Promise<string> => {
    const { code, stdout } = await shell(command);
    t.equal(code, 0, `${command}: ${stdout}`);
    return stdout;
  };
  const vendor = "deploy/vendor/helm-chart";
  await mustRun(`cp -r test/installed/crontab/crontab-3.0.0 hooked && cp ${vendor}/templates/* hooked/templates/`);
  await mustRun(`cp ${vendor}/values.yaml hooked/`);
  await mustRun("helm install crontab test/installed/crontab/crontab-1.0.0");
  await mustRun("kubectl wait --for=condition=established crd/crontabs.stable.example.com");
  await mustRun("kubectl apply -f test/installed/crontab/crontabs.yaml");
  await mustRun("helm upgrade crontab test/installed/crontab/crontab-2.0.0");
  const versions = "kubectl get crd crontabs.stable.example.com -o jsonpath='{.spec.versions[*].name}'";
  const upgrade = () => withPodsRunning(cluster, "default", () => shell("helm upgrade crontab ./hooked --timeout 2m"));

  const allow = await rejectBackup(cluster);
  // The rule comes into force a moment later.
  await mustRun("while kubectl label crontab backup a=b --dry-run=server >/dev/null 2>&1; do sleep 1; done");
  const failed = await upgrade();
  t.match(failed.result, { code: 1, stdout: /UPGRADE FAILED: pre-upgrade hooks failed/ });
  t.match(failed.ends, [{ code: 3, stderr: /default\/backup: .*it stays as it is/ }]);
  t.equal(await mustRun(versions), "v1alpha1 v1", "the CRD is that of the release before");
  t.equal(await mustRun("kubectl get jobs -o name"), "job.batch/crontab-migrate\n", "its log can be read");
  const stored = () => cluster.controlPlane.stored.countByVersion(GROUP, "crontabs");
  t.same(await stored(), { [`${GROUP}/v1`]: 2, [`${GROUP}/v1alpha1`]: 1 });

  await allow();
  await mustRun("until kubectl label crontab backup a=b --dry-run=server >/dev/null 2>&1; do sleep 1; done");
  const again = await upgrade();
  t.match(again, { result: { code: 0 }, ends: [{ code: 0 }] });
  t.equal(await mustRun(versions), "v1");
  t.same(await stored(), { [`${GROUP}/v1`]: 3 });
  t.equal(await mustRun("kubectl get jobs -o name"), "", "nothing of the hook is left");
});
