import { GROUP } from "../../../integration/crd-fixture.ts";
import { WEBHOOK_CONFIGURATIONS, collectionPath, objectPath } from "../../../../src/kube/resources.ts";
import type { Answer, Json } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import { changeStorage, createObjects, createSubject } from "../prepare.ts";
import { apply, get, merge, post, remove, stateOf } from "../script-requests.ts";

const metadataAlone = { pick: ({ apiVersion, metadata }: Json) => ({ apiVersion, metadata }) };

/** Why a list taken after a storage change proves nothing by itself: see the section on late writes in the design. */
export const lateWrites: Scenario = {
  name: "late writes of an old version",
  async play(play) {
    const shape = { storage: "v1alpha1" };
    const boats = await createSubject(play, "boat", shape);
    await createObjects(play, boats, "v1alpha1", ["patched", "replaced"]);
    const held = new Map<string, () => void>();
    let isHeld = true;
    const client = await play.webhook("boats", async ({ request: { name, uid } }: Json) => {
      if (isHeld && name !== "probe") await new Promise<void>((resolve) => held.set(name, resolve));
      const response = name === "probe" ? { uid, allowed: false } : { uid, allowed: true };
      return { answer: { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response } };
    });
    const configuration = {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: boats.plural },
      webhooks: [
        {
          name: "own.example.com",
          clientConfig: client,
          rules: [
            { apiGroups: [GROUP], apiVersions: ["*"], resources: [boats.plural], operations: ["CREATE", "UPDATE"] },
          ],
          sideEffects: "None",
          admissionReviewVersions: ["v1"],
          timeoutSeconds: 30,
        },
      ],
    };
    await play.line("register a slow webhook", post(collectionPath(WEBHOOK_CONFIGURATIONS), configuration), {
      pick: () => "registered",
    });
    const probe = post(boats.own("v1alpha1"), boats.object("v1alpha1", "probe"), { dryRun: "All" });
    await play.wait("it is in force", probe, ({ status }) => status >= 400);

    const replaced = await play.line("replaced as it is", get(boats.at("v1alpha1", "replaced")), metadataAlone);
    const create = await play.begin(
      "a create that is held is stored in the version of its beginning",
      post(boats.own("v1"), boats.object("v1", "created")),
      metadataAlone,
    );
    const patch = await play.begin(
      "and so is a patch",
      merge(boats.at("v1", "patched"), { spec: { size: 2 } }),
      metadataAlone,
    );
    const noOp = apply(
      boats.at("v1", "replaced"),
      boats.identity("v1", { name: "replaced", namespace: "default", ...stateOf(replaced) }),
    );
    const rewrite = await play.begin("and a no-op write changes nothing by it", noOp, metadataAlone);
    await until(play.world.pause.bind(play.world), () => held.size === 3);
    await changeStorage(play, boats, { storage: "v1" });
    const listed = await play.line("a list in the meantime", get(boats.all("v1")), {
      pick: ({ items, kind, metadata: { resourceVersion } }) => ({
        kind,
        metadata: { resourceVersion },
        names: items.map(({ metadata }: Json) => metadata.name),
      }),
    });
    isHeld = false;
    const answers: Answer[] = [];
    for (const [name, { answer }] of Object.entries({ created: create, patched: patch, replaced: rewrite })) {
      held.get(name)?.();
      answers.push(await answer);
    }
    const watermark = BigInt(listed.body.metadata.resourceVersion);
    play.fact(
      "what lands late is beyond the list",
      answers.slice(0, 2).map(({ body }) => BigInt(body.metadata.resourceVersion) > watermark),
    );
    await play.line(
      "a write that begins now is stored in the new version",
      post(boats.own("v1"), boats.object("v1", "new")),
      metadataAlone,
    );
    await play.line(
      "and a no-op write of what landed late, too",
      apply(boats.at("v1", "created"), boats.identity("v1", { name: "created", namespace: "default" })),
      metadataAlone,
    );
    isHeld = true;
    held.clear();
    const raced = stateOf(
      await play.line("an object that two clients write", get(boats.at("v1", "patched")), metadataAlone),
    );
    const change = (state: object, spec: object): Json => ({ metadata: state, spec });
    const free = await play.begin(
      "a patch without a resourceVersion is made again on what another client wrote meanwhile",
      merge(boats.at("v1", "patched"), change({}, { color: "red" })),
    );
    await until(play.world.pause.bind(play.world), () => held.has("patched"));
    const release = held.get("patched");
    held.clear();
    const bound = await play.begin(
      "a patch with a resourceVersion is a conflict by then",
      merge(boats.at("v1", "patched"), change(raced, { color: "blue" })),
    );
    await until(play.world.pause.bind(play.world), () => held.has("patched"));
    const releaseBound = held.get("patched");
    isHeld = false;
    await play.line(
      "another client writes it",
      merge(boats.at("v1", "patched"), change({}, { size: 9 })),
      metadataAlone,
    );
    release?.();
    await free.answer;
    releaseBound?.();
    await bound.answer;
    await play.line("both changes are there", get(boats.at("v1", "patched")));
    await play.line("remove the webhook", remove(objectPath(WEBHOOK_CONFIGURATIONS, { name: boats.plural })));
  },
};

async function until(pause: (ms: number) => Promise<void>, isSo: () => boolean): Promise<void> {
  for (let tries = 0; !isSo(); tries++) {
    if (tries === 1_000) throw new Error("The writes did not reach the webhook");
    await pause(10);
  }
}
