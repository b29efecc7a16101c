import { policyName } from "../../../../src/freeze/freeze.ts";
import { storageChange } from "../../../../src/freeze/prove.ts";
import { CRD_FIELD_MANAGER, MIGRATING, OWNER, policySpec } from "../../../../src/freeze/rule.ts";
import { BINDINGS, METADATA, POLICIES, WEBHOOK_CONFIGURATIONS } from "../../../../src/kube/objects.ts";
import { GROUP, versionsOf } from "../../../integration/crd-fixture.ts";
import type { Play, Scenario } from "../play.ts";
import {
  apply,
  changeStorage,
  createObjects,
  createSubject,
  get,
  jsonPatch,
  merge,
  metadataOf,
  post,
  remove,
  stateOf,
  type Subject,
} from "../requests.ts";
import type { Answer, Json, LineRequest, WebhookBehavior, WebhookDeed } from "../world.ts";

const metadataAlone = {
  pick: ({ metadata: { annotations, generation, name, resourceVersion, uid } }: Json) => ({
    metadata: { annotations, generation, name, resourceVersion, uid },
  }),
};

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
  busy: (uid) =>
    denial(uid, { code: 429, reason: "TooManyRequests", message: "slow down", details: { retryAfterSeconds: 7 } }),
  broken: (uid) => denial(uid, { code: 500, reason: "InternalError", message: "it broke" }),
  reset: () => "reset",
  failing: () => ({ answer: "it fails", status: 503 }),
  wrong: () => ({
    answer: { kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", response: { uid: "another", allowed: true } },
  }),
  html: () => ({ answer: "<html></html>" }),
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

const MUTATING_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

async function install(
  play: Play,
  configuration: Json,
  probe: { readonly subject: Subject; readonly name: string },
): Promise<void> {
  const path = configuration.kind.startsWith("Validating") ? WEBHOOK_CONFIGURATIONS : MUTATING_CONFIGURATIONS;
  await play.line(`register the webhook "${configuration.metadata.name}"`, post(path, configuration), metadataAlone);
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
      const anyMessage = ["html", "wrong"].includes(name);
      await play.line(`the webhook's answer "${name}"`, touch(bowls, name), { anyMessage });
    }
    const path = `${WEBHOOK_CONFIGURATIONS}/bowls-validating`;
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
    await play.line("remove the webhook", remove(`${MUTATING_CONFIGURATIONS}/lamps-mutating`));
    await play.wait("it is not asked any more", touch(lamps, "plain", "All"), isTaken);
  },
};

const manager = { fieldManager: CRD_FIELD_MANAGER };
const storedVersionsAlone = { pick: ({ status }: Json) => status.storedVersions as unknown };

/** Both halves of the proof of a freeze, see src/freeze/prove.ts. */
function proof(subject: Subject, crd: Json): { readonly storage: LineRequest; readonly label: LineRequest } {
  const query = { dryRun: "All", ...manager };
  const atVersion = { op: "add", path: "/metadata/resourceVersion", value: crd.metadata.resourceVersion };
  const dryRun = (patch: readonly object[]): LineRequest => ({
    ...jsonPatch(subject.path, [atVersion, ...patch], query),
    accept: METADATA,
  });
  const labels = { op: "add", path: "/metadata/labels", value: { probe: "true" } };
  return { storage: dryRun(storageChange(crd)), label: dryRun([labels]) };
}

function annotate(subject: Subject, annotations: Json): LineRequest {
  return merge(subject.path, { metadata: { annotations } }, manager);
}

const isDenied = ({ status }: Answer): boolean => status >= 400;

/** What a guard must do. */
async function guarded(play: Play, subject: Subject): Promise<void> {
  const toV1 = { storage: "v1" };
  await play.line(
    "a storage change of what is not frozen passes as a dry-run",
    { ...subject.setVersions(toV1), query: { dryRun: "All" } },
    metadataAlone,
  );
  await play.line("freeze", annotate(subject, { [MIGRATING]: "true", [OWNER]: "{}" }), metadataAlone);
  const frozen = (await play.line("read it", get(subject.path), metadataAlone)).body;
  await play.wait("the guard is in force", proof(subject, frozen).storage, isDenied);
  await play.line("the proof, a storage change as a dry-run", proof(subject, frozen).storage);
  await play.line("the proof, a label as a dry-run", proof(subject, frozen).label);
  await play.line("a storage change", subject.setVersions(toV1));
  await play.line(
    "a storage change that takes the annotation off",
    merge(subject.path, {
      metadata: { annotations: { [MIGRATING]: null } },
      spec: { versions: versionsOf(toV1) },
    }),
  );
  await play.line(
    "another change of the spec passes",
    merge(subject.path, { spec: { versions: versionsOf({ ...toV1, storage: "v1alpha1", unserved: ["v1"] }) } }),
    metadataAlone,
  );
  await play.line(
    "a write of status passes",
    merge(`${subject.path}/status`, { status: { storedVersions: ["v1alpha1"] } }),
    metadataAlone,
  );
  await play.line(
    "a write of status that takes the storage version out of storedVersions",
    merge(`${subject.path}/status`, { status: { storedVersions: ["v1"] } }),
    storedVersionsAlone,
  );
  await play.line(
    "an update of the CRD that changes nothing lists it again",
    merge(subject.path, { metadata: { annotations: { [MIGRATING]: "true" } } }),
    storedVersionsAlone,
  );
  await play.line("lift the freeze", annotate(subject, { [MIGRATING]: null, [OWNER]: null }), metadataAlone);
  const lifted = (await play.line("read it again", get(subject.path), metadataAlone)).body;
  await play.line("the proof fails without the annotation", proof(subject, lifted).storage, metadataAlone);
  await play.line("a storage change passes", subject.setVersions(toV1), metadataAlone);
}

export const freezeByPolicy: Scenario = {
  name: "the freeze by ksvm's policy",
  async play(play) {
    const tents = await createSubject(play, "tent", { storage: "v1alpha1" });
    const name = policyName(tents.name);
    const [policyPath, bindingPath] = [`${POLICIES}/${name}`, `${BINDINGS}/${name}`];
    const put = (path: string, kind: string, spec: object, owner: string): LineRequest => {
      const metadata = { name, annotations: { [OWNER]: owner } };
      return apply(path, { apiVersion: ADMISSION, kind, metadata, spec }, { ...manager, force: true });
    };
    const policy = (owner: string): LineRequest =>
      put(policyPath, "ValidatingAdmissionPolicy", policySpec(tents.name), owner);
    const bound = { policyName: name, validationActions: ["Deny"] };
    await play.line("there is no policy", get(policyPath));
    const created = await play.line("create the policy", policy("{}"), metadataAlone);
    await play.line(
      "create the binding",
      put(bindingPath, "ValidatingAdmissionPolicyBinding", bound, "{}"),
      metadataAlone,
    );
    const taken = await play.line("take the policy over", policy("{1}"), metadataAlone);
    await guarded(play, tents);
    await play.line("remove the policy with a stale resourceVersion", remove(policyPath, stateOf(created)));
    const binding = await play.line("read the binding", get(bindingPath), metadataAlone);
    await play.line("remove the binding", remove(bindingPath, stateOf(binding)));
    await play.line("remove the policy", remove(policyPath, stateOf(taken)), { anyMessage: true });
  },
};
