import { storageChange } from "../../../../src/freeze/prove.ts";
import { CRD_FIELD_MANAGER, MIGRATING, OWNER } from "../../../../src/freeze/rule.ts";
import { METADATA_LIST } from "../../../../src/kube/objects.ts";
import { GROUP, versionsOf } from "../../../integration/crd-fixture.ts";
import type { Scenario } from "../play.ts";
import {
  apply,
  changeStorage,
  CRD_COLLECTION,
  createObjects,
  createSubject,
  get,
  isEstablished,
  jsonPatch,
  merge,
  post,
  remove,
  served,
  stateOf,
  Subject,
} from "../requests.ts";
import type { Answer, Json } from "../world.ts";

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
    const created = await play.line("create", cogs.create(shape), options);
    await play.line("create it again", cogs.create(shape), { anyStored: true });
    const established = await play.until("it becomes established", get(cogs.path), isEstablished, options);
    await served(play, cogs, shape);
    const { resourceVersion } = established.body.metadata;
    const query = { fieldSelector: `metadata.name=${cogs.name}`, resourceVersion: 0 };
    const cached = get(CRD_COLLECTION, { accept: METADATA_LIST, query });
    const isSeen = ({ body }: Answer): boolean => body.items?.[0]?.metadata.resourceVersion === resourceVersion;
    await play.until("a list by name shows the watch cache", cached, isSeen);
    await play.until("and that of another API server", { ...cached, server: 1 }, isSeen);

    const stale = stateOf(created);
    const freeze = (state: object, value: string | null): Json => ({
      metadata: { ...state, annotations: { [MIGRATING]: value, [OWNER]: value } },
    });
    await play.line("freeze with a stale resourceVersion", merge(cogs.path, freeze(stale, "true"), manager));
    const frozen = await play.line(
      "freeze with uid and resourceVersion",
      merge(cogs.path, freeze(stateOf(established), "true"), manager),
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
    const toV1 = { ...shape, storage: "v1" };
    await play.line("a third one", cogs.setVersions(toV1), options);
    await served(play, cogs, toV1);
    const withoutOld = versionsOf({ versions: ["v1beta1", "v1"], storage: "v1" });
    await play.line(
      "a version in storedVersions cannot be removed",
      merge(cogs.path, { spec: { versions: withoutOld } }),
    );

    await play.line("as it is now", get(cogs.path), options);
    await play.line(
      "a write of status through the main resource changes nothing",
      merge(cogs.path, prune({}, ["v1"])),
      options,
    );
    await play.line("prune with a stale resourceVersion", merge(status, prune(stale, ["v1"]), manager));
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
    await play.line(
      "prune with uid and resourceVersion: the generation stays",
      merge(status, prune(stateOf(unmarked), ["v1"]), manager),
      options,
    );
    await play.line(
      "now the old version can be removed",
      merge(cogs.path, { spec: { versions: withoutOld } }),
      options,
    );

    const last = await play.line("as it is at the end", get(cogs.path), options);
    await play.line("delete with a stale resourceVersion", remove(cogs.path, stale));
    await play.line("delete", remove(cogs.path, { uid: stateOf(last).uid }), { anyStored: true, pick: deletion });
    await play.wait("it is gone", get(cogs.path), ({ status: code }) => code === 404);
    await play.line("create it again: another uid, the first generation", cogs.create(shape), options);
    await play.wait("it is established again", get(cogs.path), isEstablished);
  },
};

/** The answer to a deletion that finalizers hold back is the object as it is deleted. */
function deletion({ kind, metadata }: Json): unknown {
  return { kind, isDeleted: metadata?.deletionTimestamp !== undefined, finalizers: metadata?.finalizers };
}

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

/** The entries of a resource, with what ksvm reads of them. */
function entriesOf(plural: string): (body: Json) => unknown {
  return ({ groupVersion, kind, resources }) => ({
    kind,
    groupVersion,
    resources: resources
      .filter(({ name }: Json) => name === plural || name.startsWith(`${plural}/`))
      .map(({ kind: itsKind, name, namespaced, storageVersionHash, verbs }: Json) => ({
        name,
        kind: itsKind,
        namespaced,
        verbs,
        storageVersionHash,
      })),
  });
}

export const discovery: Scenario = {
  name: "discovery",
  async play(play) {
    await play.line("the version", get("/version"), { pick: ({ gitVersion }) => /^v1\.\d+\.\d+/.test(gitVersion) });
    const widgets = await createSubject(play, "gadget", { storage: "v1alpha1", statusSubresource: true });
    const { plural } = widgets;
    // Other scenarios have versions of the same group.
    const groupOf = ({ groups, kind }: Json): unknown => {
      const { name, preferredVersion, versions } = groups.find((one: Json) => one.name === GROUP);
      return {
        kind,
        name,
        preferredVersion,
        versions: versions.filter(({ version }: Json) => /^v1(alpha1)?$/.test(version)),
      };
    };
    await play.line("/apis lists the group", get("/apis"), { pick: groupOf });
    for (const version of ["v1alpha1", "v1"]) {
      const path = `/apis/${GROUP}/${version}`;
      await play.line(`${version} lists the resource, its status and the hash of the storage version`, get(path), {
        pick: entriesOf(plural),
      });
    }
    await play.line("objects of a resource that is not there", get(`/apis/${GROUP}/v1/nothings`));
    await play.line("objects of a version that the CRD does not have", get(`/apis/${GROUP}/v7/${plural}`));
    await play.line("the apiextensions group lists CRDs", get("/apis/apiextensions.k8s.io/v1"), {
      pick: entriesOf("customresourcedefinitions"),
    });
    await play.line("the coordination group lists Leases", get("/apis/coordination.k8s.io/v1"), {
      pick: entriesOf("leases"),
    });

    const shape = { storage: "v1", statusSubresource: true };
    await changeStorage(play, widgets, shape);
    for (const version of ["v1alpha1", "v1"]) {
      const path = `/apis/${GROUP}/${version}`;
      await play.line(`${version} shows the hash of the new storage version`, get(path), { pick: entriesOf(plural) });
    }
    await changeStorage(play, widgets, { ...shape, unserved: ["v1alpha1"] });
    const old = `/apis/${GROUP}/v1alpha1`;
    const lists =
      (wanted: string) =>
      ({ body, status }: { readonly body: Json; readonly status: number }): boolean =>
        status === 200 && body.resources.some(({ name }: Json) => name === wanted);
    await play.wait("v1alpha1 is unserved", get(old), (answer) => !lists(plural)(answer));
    await play.wait("v1alpha1 answers no list", get(widgets.all("v1alpha1")), ({ status }) => status === 404);
    await play.line("objects of a version that is not served", get(widgets.all("v1alpha1")));
    await play.line("the storage version is not served", widgets.setVersions({ ...shape, unserved: ["v1"] }), {
      pick: ({ status }) => status.storedVersions as unknown,
    });
    await play.wait("v1 is unserved", get(`/apis/${GROUP}/v1`), (answer) => !lists(plural)(answer));
    await play.wait("v1alpha1 is served again", get(old), lists(plural));
    await play.line("no hash of a storage version that is not served", get(old), { pick: entriesOf(plural) });
  },
};

/** What becomes of objects whose managedFields name a version that is taken out of the CRD. */
export const goneVersions: Scenario = {
  name: "versions that are gone",
  async play(play) {
    const ruins = await createSubject(play, "ruin", { storage: "v1alpha1" });
    await createObjects(play, ruins, "v1alpha1", ["rewritten", "patched"]);
    await changeStorage(play, ruins, { storage: "v1" });
    const noOp = (name: string) => apply(ruins.at("v1", name), ruins.identity("v1", { name, namespace: "default" }));
    for (const name of ["rewritten", "patched"]) await play.line(`rewrite ${name}`, noOp(name));
    const storedVersions = { pick: ({ status }: Json) => status.storedVersions as unknown };
    await play.line("prune", merge(`${ruins.path}/status`, { status: { storedVersions: ["v1"] } }), storedVersions);
    const shape = { storage: "v1", versions: ["v1"] };
    await play.line("take the old version out", ruins.setVersions(shape), storedVersions);
    await served(play, ruins, shape);
    const crd = (await play.line("the CRD has one version", get(ruins.path), storedVersions)).body;
    const change = jsonPatch(ruins.path, storageChange(crd), { dryRun: "All" });
    await play.line("a dry-run that adds a version, as the proof of a freeze", change, storedVersions);
    await play.line("an object whose managedFields name it", get(ruins.at("v1", "rewritten")));
    await play.line("an apply to that one", noOp("rewritten"));
    await play.line("a merge patch of that one that changes nothing", merge(ruins.at("v1", "rewritten"), {}));
    await play.line("a merge patch", merge(ruins.at("v1", "patched"), { metadata: { labels: { a: "b" } } }));
    await play.line("a deletion of that one", remove(ruins.at("v1", "rewritten")));
  },
};
