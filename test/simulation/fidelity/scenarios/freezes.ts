import {
  MIGRATING_ANNOTATION,
  OWNER_ANNOTATION,
  CRD_FIELD_MANAGER,
  STORAGE_MIGRATING_CONDITION,
  WEBHOOK_NAME,
} from "../../../../src/api/names.ts";
import { freezePolicyOf } from "../../../../src/freeze/freeze-policy.ts";
import { labelChangePatch, storageChangePatch } from "../../../../src/freeze/freeze-probe.ts";
import {
  ACCEPT_METADATA,
  APPLY_PATCH,
  POLICIES,
  POLICY_BINDINGS,
  WEBHOOK_CONFIGURATIONS,
  collectionPath,
  objectPath,
} from "../../../../src/kube/resources.ts";
import { refusal, reviewBody } from "../../../../src/webhook/review.ts";
import { webhookConfigurationOf } from "../../../../src/webhook/webhook-configuration.ts";
import { versionsOf } from "../../../integration/crd-fixture.ts";
import type { Answer, Json, LineRequest } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import { createSubject } from "../prepare.ts";
import type { Play } from "../play.ts";
import { get, jsonPatch, merge, post, remove, stateOf, type Subject } from "../script-requests.ts";

const manager = { fieldManager: CRD_FIELD_MANAGER };
const storedVersionsAlone = { pick: ({ status }: Json) => status.storedVersions as unknown };
const metadataAlone = {
  pick: ({ metadata: { annotations, generation, name, resourceVersion, uid } }: Json) => ({
    metadata: { annotations, generation, name, resourceVersion, uid },
  }),
};

/** Both halves of the proof of a freeze, see src/freeze/freeze-proof.ts. */
function proof(subject: Subject, crd: Json): { readonly storage: LineRequest; readonly label: LineRequest } {
  const query = { dryRun: "All", ...manager };
  const dryRun = (body: unknown): LineRequest => ({ ...jsonPatch(subject.path, body, query), accept: ACCEPT_METADATA });
  return { storage: dryRun(storageChangePatch(crd)), label: dryRun(labelChangePatch(crd)) };
}

function annotate(subject: Subject, annotations: Json): LineRequest {
  return merge(subject.path, { metadata: { annotations } }, manager);
}

const isDenied = ({ status }: Answer): boolean => status >= 400;

/** What a guard must do, whichever it is. */
async function guarded(play: Play, subject: Subject, expected: { readonly guard: string }): Promise<void> {
  const { guard } = expected;
  const toV1 = { storage: "v1" };
  await play.line(
    `${guard}: a storage change of what is not frozen passes as a dry-run`,
    { ...subject.setVersions(toV1), query: { dryRun: "All" } },
    metadataAlone,
  );
  await play.line(
    `${guard}: freeze`,
    annotate(subject, { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: "{}" }),
    metadataAlone,
  );
  const frozen = (await play.line("read it", get(subject.path), metadataAlone)).body;
  await play.wait(`${guard} is in force`, proof(subject, frozen).storage, isDenied);
  await play.line(`${guard}: the proof, a storage change as a dry-run`, proof(subject, frozen).storage);
  await play.line(`${guard}: the proof, a label as a dry-run`, proof(subject, frozen).label);
  await play.line(`${guard}: a storage change`, subject.setVersions(toV1));
  await play.line(
    `${guard}: a storage change that takes the annotation off`,
    merge(subject.path, {
      metadata: { annotations: { [MIGRATING_ANNOTATION]: null } },
      spec: { versions: versionsOf(toV1) },
    }),
  );
  await play.line(
    `${guard}: another change of the spec passes`,
    merge(subject.path, { spec: { versions: versionsOf({ ...toV1, storage: "v1alpha1", unserved: ["v1"] }) } }),
    metadataAlone,
  );
  await play.line(
    `${guard}: a write of status passes`,
    merge(`${subject.path}/status`, { status: { storedVersions: ["v1alpha1"] } }),
    metadataAlone,
  );
  await play.line(
    `${guard}: a write of status that takes the storage version out of storedVersions`,
    merge(`${subject.path}/status`, { status: { storedVersions: ["v1"] } }),
    storedVersionsAlone,
  );
  await play.line(
    `${guard}: an update of the CRD that changes nothing lists it again`,
    merge(subject.path, { metadata: { annotations: { [MIGRATING_ANNOTATION]: "true" } } }),
    storedVersionsAlone,
  );
  await play.line(
    `${guard}: any value of the annotation freezes`,
    annotate(subject, { [MIGRATING_ANNOTATION]: "no" }),
    metadataAlone,
  );
  await play.line(`${guard}: a storage change under another value`, subject.setVersions(toV1));
  await play.line(
    `${guard}: lift the freeze`,
    annotate(subject, { [MIGRATING_ANNOTATION]: null, [OWNER_ANNOTATION]: null }),
    metadataAlone,
  );
  const lifted = (await play.line("read it again", get(subject.path), metadataAlone)).body;
  await play.line(`${guard}: the proof fails without the annotation`, proof(subject, lifted).storage, metadataAlone);
  const condition = {
    type: STORAGE_MIGRATING_CONDITION,
    status: "True",
    reason: "Tested",
    message: "",
    lastTransitionTime: "2026-01-02T03:04:05Z",
  };
  const withCondition = [...lifted.status.conditions, condition];
  await play.line(
    `${guard}: the condition of the in-tree controller`,
    merge(`${subject.path}/status`, { status: { conditions: withCondition } }),
    metadataAlone,
  );
  await play.line(`${guard}: a storage change under the condition`, subject.setVersions(toV1));
  await play.line(
    `${guard}: the condition goes`,
    merge(`${subject.path}/status`, { status: { conditions: lifted.status.conditions } }),
    metadataAlone,
  );
  await play.line(`${guard}: a storage change passes`, subject.setVersions(toV1), metadataAlone);
}

export const freezeByPolicy: Scenario = {
  name: "the freeze by ksvm's policy",
  async play(play) {
    const tents = await createSubject(play, "tent", { storage: "v1alpha1" });
    const { binding, policy } = freezePolicyOf(tents.name, { annotations: { [OWNER_ANNOTATION]: "{}" } });
    const { name } = policy.metadata;
    const paths = [objectPath(POLICIES, { name }), objectPath(POLICY_BINDINGS, { name })] as const;
    await play.line("there is no policy", get(paths[0]));
    const created = await play.line(
      "create the policy",
      post(collectionPath(POLICIES), policy, manager),
      metadataAlone,
    );
    await play.line("create the policy again", post(collectionPath(POLICIES), policy, manager));
    await play.line("create the binding", post(collectionPath(POLICY_BINDINGS), binding, manager), metadataAlone);
    const again = {
      method: "PATCH",
      path: paths[0],
      contentType: APPLY_PATCH,
      query: { ...manager, force: true },
    } as const;
    const body = (state: object): Json => ({
      ...policy,
      metadata: { ...policy.metadata, annotations: { [OWNER_ANNOTATION]: "{1}" }, ...state },
    });
    const taken = await play.line("take the policy over", { ...again, body: body(stateOf(created)) }, metadataAlone);
    await play.line("take the policy over with a stale resourceVersion", { ...again, body: body(stateOf(created)) });
    await guarded(play, tents, { guard: "policy" });
    await play.line("remove the policy with a stale resourceVersion", remove(paths[0], stateOf(created)));
    await play.line(
      "remove the policy with the uid of another one",
      remove(paths[0], { uid: "11111111-2222-3333-4444-555555555555" }),
    );
    const bound = await play.line("read the binding", get(paths[1]), metadataAlone);
    await play.line("remove the binding", remove(paths[1], stateOf(bound)));
    await play.line("remove the policy", remove(paths[0], stateOf(taken)), { anyMessage: true });
  },
};

export const freezeByWebhook: Scenario = {
  name: "the freeze by ksvm's webhook",
  alone: true,
  async play(play) {
    const ropes = await createSubject(play, "rope", { storage: "v1alpha1" });
    let isDown = false;
    const client = await play.webhook("ropes", (review: Json) => {
      if (isDown) return "reset";
      const bytes = Buffer.from(JSON.stringify(review));
      const { answer, status } =
        bytes.length === 0
          ? refusal(400)
          : reviewBody({ bytes, head: bytes, length: bytes.length } as never, { bodyLimit: 2 ** 22 });
      return { answer, status };
    });
    const configuration = webhookConfigurationOf({ clientConfig: client });
    await play.line("register the webhook", post(collectionPath(WEBHOOK_CONFIGURATIONS), configuration), metadataAlone);
    await guarded(play, ropes, { guard: "webhook" });
    await play.line("freeze once more", annotate(ropes, { [MIGRATING_ANNOTATION]: "true" }), metadataAlone);
    isDown = true;
    const toOld = ropes.setVersions({ storage: "v1alpha1" });
    await play.line("a stopped webhook blocks a storage change of what is frozen", toOld);
    await play.line(
      "a stopped webhook blocks no label",
      merge(ropes.path, { metadata: { labels: { a: "b" } } }),
      metadataAlone,
    );
    await play.line(
      "a stopped webhook does not keep the freeze from being lifted",
      annotate(ropes, { [MIGRATING_ANNOTATION]: null }),
      metadataAlone,
    );
    await play.line("a stopped webhook blocks no storage change of what is not frozen", toOld, metadataAlone);
    await play.line("freeze it again", annotate(ropes, { [MIGRATING_ANNOTATION]: "true" }), metadataAlone);
    const operations = [{ op: "replace", path: "/webhooks/0/rules/0/operations", value: ["DELETE"] }];
    const webhook = objectPath(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
    await play.line("have the webhook asked about deletions", jsonPatch(webhook, operations), metadataAlone);
    const removal = { ...remove(ropes.path), query: { dryRun: "All" } };
    await play.wait("that is in force", removal, ({ status }) => status === 403);
    await play.line("a condition that reads the new object cannot be evaluated for a deletion", removal, {
      pick: ({ code, reason }) => ({ code, reason }),
    });
    await play.line("remove the webhook", remove(objectPath(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME })));
  },
};
