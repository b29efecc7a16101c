import { GROUP } from "../../../integration/crd-fixture.ts";
import {
  POLICIES,
  POLICY_BINDINGS,
  WEBHOOK_CONFIGURATIONS,
  collectionPath,
  objectPath,
} from "../../../../src/kube/resources.ts";
import type { Answer, Json, WebhookBehavior, WebhookDeed } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import type { Play } from "../play.ts";
import { changeStorage, createObjects, createSubject } from "../prepare.ts";
import { apply, get, merge, metadataOf, post, remove, stateOf, type Subject } from "../script-requests.ts";

/** What the policy of another owner asks for. */
export const DENIED_EXPRESSION = 'object.metadata.name != "denied"';

const ADMISSION = "admissionregistration.k8s.io/v1";

function ruleOf(subject: Subject, operations: readonly string[] = ["UPDATE"]): Json {
  return { apiGroups: [GROUP], apiVersions: ["*"], resources: [subject.plural], operations };
}

const isRefused = ({ status }: Answer): boolean => status >= 400;
const isTaken = ({ status }: Answer): boolean => status < 300;

/** A no-op write of ksvm, which an update by admission is. */
function touch(subject: Subject, name: string, dryRun?: "All") {
  return apply(subject.at("v1", name), subject.identity("v1", { name, namespace: "default" }), { dryRun });
}

export const policies: Scenario = {
  name: "a policy of another owner",
  async play(play) {
    const bells = await createSubject(play, "bell", { storage: "v1alpha1" });
    await createObjects(play, bells, "v1alpha1", ["denied", "other"]);
    await changeStorage(play, bells, { storage: "v1" });
    const name = "bells";
    const metadata = { name };
    const policy = {
      apiVersion: ADMISSION,
      kind: "ValidatingAdmissionPolicy",
      metadata,
      spec: {
        matchConstraints: { resourceRules: [ruleOf(bells)] },
        validations: [{ expression: DENIED_EXPRESSION, message: "this one stays as it is" }],
      },
    };
    const binding = {
      apiVersion: ADMISSION,
      kind: "ValidatingAdmissionPolicyBinding",
      metadata,
      spec: { policyName: name, validationActions: ["Deny"] },
    };
    const answerMeta = {
      pick: ({ metadata: { resourceVersion, uid, name: itsName } }: Json) => ({
        metadata: { resourceVersion, uid, name: itsName },
      }),
    };
    await play.line("create the policy", post(collectionPath(POLICIES), policy), answerMeta);
    await play.line("create the binding", post(collectionPath(POLICY_BINDINGS), binding), answerMeta);
    await play.wait("the policy is in force", touch(bells, "denied", "All"), isRefused);
    await play.line("it denies an update", touch(bells, "denied"));
    await play.line("it denies a dry-run", touch(bells, "denied", "All"));
    await play.line("it lets another object through", touch(bells, "other"));
    await play.line("it lets a deletion through", remove(bells.at("v1", "denied")));
    await play.line("it lets a create through", post(bells.own("v1"), bells.object("v1", "denied")));
    const found = await play.line("read the binding", get(objectPath(POLICY_BINDINGS, { name })), answerMeta);
    await play.line(
      "remove the binding with a stale resourceVersion",
      remove(objectPath(POLICY_BINDINGS, { name }), { resourceVersion: "1" }),
    );
    await play.line("remove the binding", remove(objectPath(POLICY_BINDINGS, { name }), stateOf(found)));
    await play.wait("the policy does nothing without it", touch(bells, "denied", "All"), isTaken);
    await play.line("an update passes", touch(bells, "denied"));
    await play.line("remove the policy", remove(objectPath(POLICIES, { name })));
    await play.line("remove it again", remove(objectPath(POLICIES, { name })));
  },
};

/** Answers of webhooks, by the name of the object they are asked about. */
const DEEDS: Readonly<Record<string, (uid: string) => WebhookDeed>> = {
  plain: (uid) => denial(uid),
  text: (uid) => denial(uid, { message: "not this one" }),
  notfound: (uid) =>
    denial(uid, {
      code: 404,
      reason: "NotFound",
      message: "no such thing",
      details: { name: "notfound", kind: "bowls" },
    }),
  conflict: (uid) => denial(uid, { code: 409, reason: "Conflict", message: "someone was quicker" }),
  expired: (uid) => denial(uid, { code: 410, reason: "Expired", message: "too late" }),
  busy: (uid) =>
    denial(uid, { code: 429, reason: "TooManyRequests", message: "slow down", details: { retryAfterSeconds: 7 } }),
  broken: (uid) => denial(uid, { code: 500, reason: "InternalError", message: "it broke" }),
  unauthorized: (uid) => denial(uid, { code: 401, reason: "Unauthorized", message: "who are you" }),
  fine: (uid) => denial(uid, { code: 200, message: "denied with 200" }),
  reset: () => "reset",
  failing: () => ({ answer: "it fails", status: 503 }),
  wrong: () => ({
    answer: { kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", response: { uid: "another", allowed: true } },
  }),
  html: () => ({ answer: "<html></html>" }),
  empty: () => ({ answer: {} }),
  allowed: (uid) => reviewOf(uid, { allowed: true }),
};

function reviewOf(uid: string, response: object): WebhookDeed {
  return { answer: { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response: { uid, ...response } } };
}

function denial(uid: string, status?: object): WebhookDeed {
  return reviewOf(uid, { allowed: false, ...(status === undefined ? {} : { status }) });
}

const behavior: WebhookBehavior = ({ request: { name, uid } }: Json) =>
  DEEDS[name]?.(uid) ?? reviewOf(uid, { allowed: true });

function configurationOf(subject: Subject, clientConfig: object, more: object = {}, type = "Validating"): Json {
  return {
    apiVersion: ADMISSION,
    kind: `${type}WebhookConfiguration`,
    metadata: { name: `${subject.plural}-${type.toLowerCase()}` },
    webhooks: [
      {
        name: "own.example.com",
        clientConfig,
        rules: [ruleOf(subject)],
        sideEffects: "None",
        admissionReviewVersions: ["v1"],
        ...more,
      },
    ],
  };
}

const MUTATING_CONFIGURATIONS = { ...WEBHOOK_CONFIGURATIONS, resource: "mutatingwebhookconfigurations" };
const metadataAlone = {
  pick: ({ metadata: { name, resourceVersion, uid } }: Json) => ({ metadata: { name, resourceVersion, uid } }),
};

async function install(
  play: Play,
  configuration: Json,
  probe: { readonly subject: Subject; readonly name: string },
): Promise<void> {
  const resource = configuration.kind.startsWith("Validating") ? WEBHOOK_CONFIGURATIONS : MUTATING_CONFIGURATIONS;
  await play.line(
    `register the webhook "${configuration.metadata.name}"`,
    post(collectionPath(resource), configuration),
    metadataAlone,
  );
  await play.wait("the webhook is in force", touch(probe.subject, probe.name, "All"), isRefused);
}

export const webhooks: Scenario = {
  name: "a webhook of another owner",
  async play(play) {
    const bowls = await createSubject(play, "bowl", { storage: "v1" });
    await createObjects(play, bowls, "v1", [...Object.keys(DEEDS), "unknown"]);
    const client = await play.webhook("bowls", behavior);
    await install(play, configurationOf(bowls, client), { subject: bowls, name: "plain" });
    for (const name of Object.keys(DEEDS)) {
      // The words of a broken answer are those of a parser, and of no consequence.
      const anyMessage = ["empty", "html", "wrong"].includes(name);
      await play.line(`the webhook's answer "${name}"`, touch(bowls, name), { anyMessage });
    }
    await play.line("a deletion does not reach it", remove(bowls.at("v1", "plain")));
    const path = objectPath(WEBHOOK_CONFIGURATIONS, { name: "bowls-validating" });
    const ignore = merge(path, {
      webhooks: [{ ...configurationOf(bowls, client).webhooks[0], failurePolicy: "Ignore" }],
    });
    await play.line("failures are ignored from now on", ignore, metadataAlone);
    await play.wait("that is in force", touch(bowls, "reset", "All"), isTaken);
    for (const name of ["reset", "failing"]) {
      await play.line(`ignored: the webhook's answer "${name}"`, touch(bowls, name));
    }
    await play.line("a denial is not ignored", touch(bowls, "text"));
    await play.line("remove the webhook", remove(path));
    await play.wait("it is not asked any more", touch(bowls, "text", "All"), isTaken);
    await play.line("an update passes", touch(bowls, "text"));
  },
};

export const hangingWebhook: Scenario = {
  name: "a webhook that hangs",
  async play(play) {
    const jars = await createSubject(play, "jar", { storage: "v1" });
    await createObjects(play, jars, "v1", ["a"]);
    const client = await play.webhook("jars", () => "hang");
    await install(play, configurationOf(jars, client, { timeoutSeconds: 1 }), { subject: jars, name: "a" });
    await play.line("the update fails when the webhook's time is up", touch(jars, "a"));
    const path = objectPath(WEBHOOK_CONFIGURATIONS, { name: "jars-validating" });
    await play.line("remove the webhook", remove(path));
    await play.wait("it is not asked any more", touch(jars, "a", "All"), isTaken);
  },
};

export const mutatingWebhook: Scenario = {
  name: "a webhook that mutates",
  async play(play) {
    const lamps = await createSubject(play, "lamp", { storage: "v1alpha1" });
    await createObjects(play, lamps, "v1alpha1", ["labeled", "resized", "plain"]);
    await changeStorage(play, lamps, { storage: "v1" });
    const patches: Readonly<Record<string, readonly object[]>> = {
      labeled: [{ op: "add", path: "/metadata/labels", value: { changed: "yes" } }],
      resized: [{ op: "replace", path: "/spec/size", value: 7 }],
    };
    const client = await play.webhook("lamps", ({ request: { name, uid } }: Json) => {
      if (name === "plain") return denial(uid);
      const patch = patches[name];
      const encoded = patch && { patchType: "JSONPatch", patch: Buffer.from(JSON.stringify(patch)).toString("base64") };
      return reviewOf(uid, { allowed: true, ...encoded });
    });
    await install(play, configurationOf(lamps, client, {}, "Mutating"), { subject: lamps, name: "plain" });
    for (const name of ["labeled", "resized"]) {
      const before = await play.line(`${name} before`, get(lamps.at("v1", name)));
      await play.line(`a no-op write of ${name} is changed by the webhook`, touch(lamps, name));
      await play.line(`a second one of ${name} writes nothing`, touch(lamps, name));
      play.fact(`the generation of ${name} shows a change of its spec`, metadataOf(before).generation);
    }
    await play.line("a denial of a mutating webhook", touch(lamps, "plain"));
    await play.line("remove the webhook", remove(objectPath(MUTATING_CONFIGURATIONS, { name: "lamps-mutating" })));
    await play.wait("it is not asked any more", touch(lamps, "plain", "All"), isTaken);
  },
};
