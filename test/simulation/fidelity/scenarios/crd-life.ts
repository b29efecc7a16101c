import { issueSelfSigned } from "../../../../src/certs/self-signed.ts";
import { versionsOf } from "../../../integration/crd-fixture.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, CRD_FIELD_MANAGER } from "../../../../src/api/names.ts";
import { ACCEPT_METADATA, ACCEPT_METADATA_LIST } from "../../../../src/kube/resources.ts";
import type { Answer, Json } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import { served } from "../prepare.ts";
import {
  apply,
  CRD_COLLECTION,
  get,
  isEstablished,
  jsonPatch,
  merge,
  post,
  put,
  remove,
  stateOf,
  Subject,
} from "../script-requests.ts";

/** Everything of a CRD that ksvm decides on. The answer to a write may lack `spec.conversion`, which is filled in by a read. */
function facts({ apiVersion, kind, metadata, spec, status }: Json): unknown {
  const versions = spec.versions.map(({ name, served: isServed, storage }: Json) => ({
    name,
    served: isServed,
    storage,
  }));
  return {
    apiVersion,
    kind,
    metadata,
    scope: spec.scope,
    group: spec.group,
    versions,
    status,
  };
}

/** Whose certificate an injector writes. */
const HOST = { dnsNames: ["convert.example.com"], ipAddresses: [] };

const options = { pick: facts };
const manager = { fieldManager: CRD_FIELD_MANAGER };

const prune = (state: object, storedVersions: readonly string[]): Json => ({
  metadata: state,
  status: { storedVersions },
});

const conditionOf = ({ metadata, status }: Json): unknown => ({
  isDeleted: metadata.deletionTimestamp !== undefined,
  finalizers: metadata.finalizers,
  terminating: status.conditions.find(({ type }: Json) => type === "Terminating")?.status,
});

const isTerminating = ({ body }: Answer): boolean =>
  body.status?.conditions?.some(({ type }: Json) => type === "Terminating");

export const crdLife: Scenario = {
  name: "the life of a CRD",
  async play(play) {
    const cogs = new Subject("cog");
    const shape = { versions: ["v1alpha1", "v1beta1", "v1"], storage: "v1alpha1" };
    const status = `${cogs.path}/status`;
    await play.line("no CRD has the name", get(cogs.path));
    const atOnce = get(cogs.path, { accept: ACCEPT_METADATA, query: { resourceVersion: "0" } });
    await play.line("and none had, as far as the watch cache tells", atOnce);
    await play.line("a patch of a CRD that is not there", merge(cogs.path, { metadata: { labels: { a: "b" } } }));
    const created = await play.line("create", cogs.create(shape), options);
    await play.line("create it again", cogs.create(shape), { anyStored: true });
    const established = await play.until("it becomes established", get(cogs.path), isEstablished, options);
    await served(play, cogs, shape);
    await play.line("its metadata alone", get(cogs.path, { accept: ACCEPT_METADATA }));
    const { resourceVersion } = established.body.metadata;
    const notOlder = get(cogs.path, { accept: ACCEPT_METADATA, query: { resourceVersion } });
    await play.line("its metadata, not older than it is", notOlder);
    await play.line("and of another API server", { ...notOlder, server: 1 });
    await play.line("its metadata as the watch cache has it by then, without a wait", atOnce);
    const toCome = String(Number(resourceVersion) + 1_000_000);
    const listed = (notOlderThan: string, name = cogs.name) =>
      get(CRD_COLLECTION, {
        accept: ACCEPT_METADATA_LIST,
        query: {
          fieldSelector: `metadata.name=${name}`,
          resourceVersion: notOlderThan,
          resourceVersionMatch: "NotOlderThan",
        },
      });
    await play.line("a list by name, not older than it is", listed(resourceVersion));
    await play.line("and of another API server", { ...listed(resourceVersion), server: 1 });
    await play.line("a list by name as the watch cache has it by then, without a wait", listed("0"));
    await play.line("the same of a name that no CRD has", listed("0", "none.example.com"));
    await play.line("a list by name, not older than what is to come", listed(toCome));
    await play.line(
      "its metadata, not older than what is to come",
      get(cogs.path, { accept: ACCEPT_METADATA, query: { resourceVersion: toCome } }),
    );
    const byName = { fieldSelector: `metadata.name=${cogs.name}` };
    await play.line(
      "a list of its metadata by name",
      get(CRD_COLLECTION, { accept: ACCEPT_METADATA_LIST, query: byName }),
    );
    await play.line(
      "a list of a name that no CRD has",
      get(CRD_COLLECTION, { query: { fieldSelector: "metadata.name=none.example.com" } }),
    );

    const stale = stateOf(created);
    const freeze = (state: object, value: string | null): Json => ({
      metadata: { ...state, annotations: { [MIGRATING_ANNOTATION]: value, [OWNER_ANNOTATION]: value } },
    });
    await play.line("freeze with a stale resourceVersion", merge(cogs.path, freeze(stale, "true"), manager));
    const foreign = { ...stateOf(established), uid: "11111111-2222-3333-4444-555555555555" };
    await play.line("freeze with the uid of another CRD", merge(cogs.path, freeze(foreign, "true"), manager));
    const frozen = await play.line(
      "freeze with uid and resourceVersion",
      merge(cogs.path, freeze(stateOf(established), "true"), manager),
      options,
    );
    await play.line(
      "freeze again: nothing is written",
      merge(cogs.path, freeze(stateOf(frozen), "true"), manager),
      options,
    );
    await play.line(
      "freeze as a dry-run of another value",
      merge(cogs.path, freeze(stateOf(frozen), "other"), { ...manager, dryRun: "All" }),
      options,
    );
    await play.line("lift it", merge(cogs.path, freeze(stateOf(frozen), null), manager), options);

    await play.line(
      "a label is no change of the generation",
      merge(cogs.path, { metadata: { labels: { team: "a" } } }, { fieldManager: "someone" }),
      options,
    );
    const toBeta = { ...shape, storage: "v1beta1" };
    await play.line("another storage version: generation and storedVersions grow", cogs.setVersions(toBeta), options);
    await play.line("the same versions again: nothing is written", cogs.setVersions(toBeta), options);
    const flip = [
      { op: "add", path: "/spec/versions/1/storage", value: false },
      { op: "add", path: "/spec/versions/2/storage", value: true },
    ];
    await play.line("a third one, by a JSON patch", jsonPatch(cogs.path, flip, { fieldManager: "someone" }), options);
    await play.line(
      "a JSON patch with a stale resourceVersion",
      jsonPatch(cogs.path, [{ op: "add", path: "/metadata/resourceVersion", value: stale.resourceVersion }, ...flip]),
    );
    await play.line(
      "a JSON patch of a place that is not there",
      jsonPatch(cogs.path, [{ op: "replace", path: "/spec/versions/9/storage", value: true }]),
      { anyMessage: true },
    );
    const toV1 = { ...shape, storage: "v1" };
    await served(play, cogs, toV1);
    const withoutOld = versionsOf({ versions: ["v1beta1", "v1"], storage: "v1" });
    await play.line(
      "a version in storedVersions cannot be removed",
      merge(cogs.path, { spec: { versions: withoutOld } }),
    );
    await play.line(
      "two storage versions are refused",
      merge(cogs.path, { spec: { versions: versionsOf(toV1).map((one) => ({ ...one, storage: true })) } }),
      { anyMessage: true },
    );
    await play.line(
      "no storage version is refused",
      merge(cogs.path, { spec: { versions: versionsOf({ ...toV1, storage: "none" }) } }),
      { anyMessage: true },
    );

    const current = await play.line("as it is now", get(cogs.path), options);
    await play.line(
      "a write of status through the main resource changes nothing",
      merge(cogs.path, prune({}, ["v1"])),
      options,
    );
    await play.line(
      "a write of spec through status changes nothing",
      merge(status, { spec: { versions: withoutOld } }),
      options,
    );
    await play.line("prune with a stale resourceVersion", merge(status, prune(stale, ["v1"]), manager));
    await play.line("prune to nothing", merge(status, prune(stateOf(current), []), manager));
    await play.line("prune to a version that it does not have", merge(status, prune({}, ["v1", "v9"]), manager));
    await play.line(
      "the storage version itself can be pruned",
      merge(status, prune({}, ["v1beta1"]), manager),
      options,
    );
    await play.line(
      "a change of the spec brings it back",
      cogs.setVersions({ ...toV1, unserved: ["v1beta1"] }),
      options,
    );
    await play.line("all of them again", merge(status, prune({}, ["v1alpha1", "v1beta1", "v1"]), manager), options);
    const migrating = {
      type: "StorageMigrating",
      status: "True",
      reason: "Tested",
      message: "",
      lastTransitionTime: "2026-01-02T03:04:05Z",
    };
    const unpruned = await play.line("read the conditions", get(cogs.path), options);
    const { conditions } = unpruned.body.status;
    const marked = await play.line(
      "the condition of the in-tree controller is written",
      merge(status, { metadata: stateOf(unpruned), status: { conditions: [...conditions, migrating] } }),
      options,
    );
    const unmarked = await play.line(
      "and taken off",
      merge(status, { metadata: stateOf(marked), status: { conditions } }),
      options,
    );
    const pruned = await play.line(
      "prune with uid and resourceVersion: the generation stays",
      merge(status, prune(stateOf(unmarked), ["v1"]), manager),
      options,
    );
    await play.line("prune again: nothing is written", merge(status, prune(stateOf(pruned), ["v1"]), manager), options);
    await play.line(
      "now the old version can be removed",
      merge(cogs.path, { spec: { versions: withoutOld } }),
      options,
    );
    await play.line("a PUT of an old state", put(cogs.path, current.body));
    await play.line("a PUT without a resourceVersion", put(cogs.path, cogs.manifest(toV1)), { anyMessage: true });

    const last = await play.line("as it is at the end", get(cogs.path), options);
    await play.line("delete with the uid of another CRD", remove(cogs.path, { uid: foreign.uid }));
    await play.line("delete with a stale resourceVersion", remove(cogs.path, stale));
    await play.line("delete", remove(cogs.path, { uid: stateOf(last).uid }), { anyStored: true, pick: deletion });
    await play.wait("it is gone", get(cogs.path), ({ status: code }) => code === 404);
    await play.line("delete it again", remove(cogs.path));
    await play.line("create it again: another uid, the first generation", cogs.create(shape), options);
    await play.wait("it is established again", get(cogs.path), isEstablished);
    await play.line("a freeze for the one before it", merge(cogs.path, freeze(stateOf(last), "true"), manager));
  },
};

/** The answer to a deletion that finalizers hold back is the object as it is deleted. */
function deletion({ kind, metadata }: Json): unknown {
  return { kind, isDeleted: metadata?.deletionTimestamp !== undefined, finalizers: metadata?.finalizers };
}

/** Who owns `spec.conversion`, by which a run tells when it changed. */
export const crdConversion: Scenario = {
  name: "changes of the conversion of a CRD",
  async play(play) {
    const gears = new Subject("gear");
    await play.line("create", gears.create({ storage: "v1" }), options);
    await play.wait("it becomes established", get(gears.path), isEstablished);
    const change = (title: string, conversion: object, fieldManager: string) =>
      play.line(title, merge(gears.path, { spec: { conversion } }, { fieldManager }), options);
    const clientConfig = { url: "https://convert.example.com/" };
    const webhook = { strategy: "Webhook", webhook: { conversionReviewVersions: ["v1"], clientConfig } };
    await change("a webhook converts", webhook, "operator");
    await change("the same again: nothing is written", webhook, "injector");
    const { caPem } = await issueSelfSigned({ ...HOST, now: new Date(), lifetimeMs: 3_600_000 });
    const caBundle = Buffer.from(caPem).toString("base64");
    await change("an injector writes the bundle", { webhook: { clientConfig: { caBundle } } }, "injector");
    await change("another address", { webhook: { clientConfig: { url: "https://other.example.com/" } } }, "another");
    await change("other review versions", { webhook: { conversionReviewVersions: ["v1", "v1beta1"] } }, "third");
    await play.line("as it is now", get(gears.path), options);
    await change("nothing converts any more", { strategy: "None", webhook: null }, "fourth");
  },
};

export const crdByApply: Scenario = {
  name: "a CRD that is applied, as the initializer does",
  async play(play) {
    const crates = new Subject("crate");
    const query = { fieldManager: "ksvm-init", force: true };
    const manifest = crates.manifest({ storage: "v1alpha1" });
    await play.line("apply what is not there", apply(crates.path, manifest, query), options);
    const created = await play.until("it becomes established", get(crates.path), isEstablished, options);
    await play.line("apply it again: nothing is written", apply(crates.path, manifest, query), options);
    await play.line(
      "apply with the uid of another CRD",
      apply(
        crates.path,
        { ...manifest, metadata: { ...manifest.metadata, uid: "11111111-2222-3333-4444-555555555555" } },
        query,
      ),
    );
    await play.line(
      "apply as another manager what it owns",
      apply(crates.path, crates.manifest({ storage: "v1" }), { fieldManager: "someone" }),
      { anyMessage: true },
    );
    await play.line(
      "apply as another manager, by force",
      apply(crates.path, crates.manifest({ storage: "v1" }), { fieldManager: "someone", force: true }),
      options,
    );
    await play.line("apply without a field manager", apply(crates.path, manifest, { fieldManager: undefined }), {
      anyMessage: true,
    });
    await play.line(
      "a merge patch of the status by the first manager",
      merge(
        `${crates.path}/status`,
        { metadata: { uid: stateOf(created).uid }, status: { storedVersions: ["v1"] } },
        query,
      ),
      {
        ...options,
        anyMessage: true,
      },
    );
  },
};

/** What an API server says of a CRD while objects are deleted with it. */
export const crdDeletion: Scenario = {
  name: "a CRD that is deleted with its objects",
  async play(play) {
    const crews = new Subject("crew");
    const shape = { storage: "v1" };
    await play.line("create", crews.create(shape), options);
    await play.wait("it is established", get(crews.path), isEstablished);
    await served(play, crews, shape);
    await play.line(
      "create an object that a finalizer holds",
      post(crews.own("v1"), crews.object("v1", "held", { metadata: { finalizers: ["example.com/hold"] } })),
    );
    await play.line("create another one", post(crews.own("v1"), crews.object("v1", "free")));
    await play.line("delete the CRD", remove(crews.path), { anyStored: true, pick: deletion });
    await play.wait("the other one is gone", get(crews.at("v1", "free")), ({ status }) => status === 404);
    await play.until("the CRD says that it is terminating", get(crews.path), isTerminating, { pick: conditionOf });
    await play.line("an object cannot be created", post(crews.own("v1"), crews.object("v1", "late")), {
      anyMessage: true,
    });
    const held = await play.until(
      "the object that is held is being deleted",
      get(crews.at("v1", "held")),
      ({ body }) => body.metadata?.deletionTimestamp !== undefined,
    );
    const release = { metadata: { ...stateOf(held), finalizers: null } };
    await play.line("its finalizer goes", merge(crews.at("v1", "held"), release), {
      anyStored: true,
      pick: ({ metadata }) => metadata.finalizers as unknown,
    });
    await play.wait("the CRD is gone", get(crews.path), ({ status }) => status === 404);
    await play.until("its objects are not served", get(crews.all("v1")), ({ status }) => status === 404);
  },
};
