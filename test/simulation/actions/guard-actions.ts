import { WEBHOOK_NAME } from "../../../src/api/names.ts";
import { policyGuardOf } from "../../../src/freeze/guard-install.ts";
import { isServing } from "../plan.ts";
import { crdNameOf } from "../world/kinds.ts";
import { oneOf } from "../world/random-choices.ts";
import type { World } from "../world/world.ts";
import { sort } from "./action-sort.ts";
import { kindOf, lastingOf } from "./choices.ts";
import { mayComeLate, untilWritten } from "./unanswered-writes.ts";

const ROOT = "/apis/admissionregistration.k8s.io/v1";
const POLICIES = `${ROOT}/validatingadmissionpolicies`;
const BINDINGS = `${ROOT}/validatingadmissionpolicybindings`;
const CONFIGURATION = `${ROOT}/validatingwebhookconfigurations/${WEBHOOK_NAME}`;

const POLICY_PREFIX = "/registry/validatingadmissionpolicies/";
/** A label of what a user creates under the name of something of ksvm. */
const CREATED_BY = "sim.example.com/created-by";

const DAMAGES = ["deletePolicy", "deleteBinding", "openPolicy", "auditOnly"] as const;

/** A user deletes or edits the policy that guards a CRD, or its binding. */
export const damagePolicy = sort<{ readonly kind: number; readonly how: (typeof DAMAGES)[number] }>({
  name: "damagePolicy",
  choose: (random, limits) => ({ kind: kindOf(random, limits), how: oneOf(random, DAMAGES) }),
  async play(world, { kind, how }) {
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const { name } = policyGuardOf(crdNameOf(plan));
    switch (how) {
      case "deletePolicy":
        return void (await world.user.send("DELETE", `${POLICIES}/${name}`));
      case "deleteBinding":
        return void (await world.user.send("DELETE", `${BINDINGS}/${name}`));
      case "openPolicy":
        return void (await world.user.merge(`${POLICIES}/${name}`, {
          spec: { validations: [{ expression: "true" }] },
        }));
      case "auditOnly":
        return void (await world.user.merge(`${BINDINGS}/${name}`, { spec: { validationActions: ["Audit"] } }));
    }
  },
});

/** A user has a policy of the name that ksvm gives those of its runs, for some time. */
export const foreignPolicy = sort<{ readonly kind: number; readonly ms: number }>({
  name: "foreignPolicy",
  choose: (random, limits) => ({ kind: kindOf(random, limits), ms: lastingOf(random) }),
  async play(world, { kind, ms }) {
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const { name } = policyGuardOf(crdNameOf(plan));
    const rule = {
      apiGroups: ["apiextensions.k8s.io"],
      apiVersions: ["v1"],
      operations: ["UPDATE"],
      resources: ["customresourcedefinitions"],
    };
    const spec = { matchConstraints: { resourceRules: [rule] }, validations: [{ expression: "true" }] };
    const kinds = { apiVersion: "admissionregistration.k8s.io/v1", kind: "ValidatingAdmissionPolicy" };
    const metadata = { name, labels: { [CREATED_BY]: "user" } };
    const answer = await world.user.send("POST", POLICIES, { ...kinds, metadata, spec });
    // It may have been written, or is written later: the user has to remove it just the same.
    const isUnsure = mayComeLate(answer);
    if (answer?.status !== 201 && !isUnsure) return;
    await world.lasting(ms);
    if (isUnsure) await untilWritten(world);
    const remove = () => world.user.send("DELETE", `${POLICIES}/${name}`);
    const isTheirs = () =>
      world.cluster.etcd.get(`${POLICY_PREFIX}${name}`)?.object.metadata.labels?.[CREATED_BY] === "user";
    const removeTheirs = async () => (isTheirs() ? remove() : undefined);
    await world.user.until(isUnsure ? removeTheirs : remove, () => world.schedule.wait(1_000));
  },
});

const CONFIGURATION_DAMAGES = ["delete", "emptyBundle", "ignoreFailures", "otherRules", "moreConditions"] as const;

/** A user deletes or edits the configuration of the webhook, which its replicas keep. */
export const damageWebhook = sort<{ readonly how: (typeof CONFIGURATION_DAMAGES)[number] }>({
  name: "damageWebhook",
  weight: 3,
  suits: ({ programs }) => programs.some(isServing),
  choose: (random) => ({ how: oneOf(random, CONFIGURATION_DAMAGES) }),
  async play(world, { how }) {
    if (how === "delete") {
      await world.user.send("DELETE", CONFIGURATION);
      return;
    }
    const change = changeOf(how);
    const path = `/webhooks/0/${change.path}`;
    await world.user.send("PATCH", CONFIGURATION, [{ op: "add", path, value: change.value }], JSON_PATCH);
  },
});

const JSON_PATCH = "application/json-patch+json";

function changeOf(how: Exclude<(typeof CONFIGURATION_DAMAGES)[number], "delete">): { path: string; value: unknown } {
  switch (how) {
    case "emptyBundle":
      return { path: "clientConfig/caBundle", value: "" };
    case "ignoreFailures":
      return { path: "failurePolicy", value: "Ignore" };
    case "otherRules":
      return { path: "rules/0/operations", value: ["DELETE"] };
    case "moreConditions":
      return { path: "matchConditions/-", value: { name: "never", expression: "false" } };
  }
}

/** A Secret of the webhook is deleted. */
export const deleteSecret = sort({
  name: "deleteSecret",
  weight: 3,
  suits: ({ programs }) => programs.some(isServing),
  choose: () => ({}),
  play: (world: World) =>
    void world.user.send("DELETE", "/api/v1/namespaces/kube-storage-migration/secrets/ksvm-webhook-tls"),
});

/** A user stops serving what `ksvm init` installed. */
export const damageShipped = sort({
  name: "damageShipped",
  weight: 3,
  suits: ({ programs }) => programs.some(({ run }) => run === "init"),
  choose: () => ({}),
  async play({ user }: World) {
    const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/storageversionmigrations.migration.k8s.io";
    await user.send("PATCH", path, [{ op: "replace", path: "/spec/versions/0/served", value: false }], JSON_PATCH);
  },
});
