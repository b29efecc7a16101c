import { GROUP } from "../../../integration/crd-fixture.ts";
import type { Json } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import { changeStorage, createSubject } from "../prepare.ts";
import { get, post } from "../script-requests.ts";

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
    await play.line("/apis lists built-in groups", get("/apis"), {
      pick: ({ groups }) =>
        ["admissionregistration.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io"].map(
          (wanted) => groups.find(({ name }: Json) => name === wanted)?.preferredVersion.version,
        ),
    });
    for (const version of ["v1alpha1", "v1"]) {
      const path = `/apis/${GROUP}/${version}`;
      await play.line(`${version} lists the resource, its status and the hash of the storage version`, get(path), {
        pick: entriesOf(plural),
      });
    }
    await play.line("a version that the group does not have", get(`/apis/${GROUP}/v7`));
    await play.line("a group that is not there", get("/apis/nothing.example.org/v1"));
    await play.line("objects of a resource that is not there", get(`/apis/${GROUP}/v1/nothings`));
    await play.line(
      "one object of a resource that is not there",
      get(`/apis/${GROUP}/v1/namespaces/default/nothings/a`),
    );
    await play.line("objects of a group that is not there", get("/apis/nothing.example.org/v1/nothings"));
    await play.line(
      "create an object of a resource that is not there",
      post(`/apis/${GROUP}/v1/namespaces/default/nothings`, {}),
    );
    for (const path of [
      "/apis/apps/v1/nothings",
      "/apis/apps/v7",
      "/apis/apps/v7/deployments",
      "/api/v1/nothings",
      "/api/v7",
    ]) {
      await play.line(`built in, and not there: ${path}`, get(path));
    }
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
    await play.line("one object of a version that is not served", get(widgets.at("v1alpha1", "a")));
    await play.line("the storage version is not served", widgets.setVersions({ ...shape, unserved: ["v1"] }), {
      pick: ({ status }) => status.storedVersions as unknown,
    });
    await play.wait("v1 is unserved", get(`/apis/${GROUP}/v1`), (answer) => !lists(plural)(answer));
    await play.wait("v1alpha1 is served again", get(old), lists(plural));
    await play.line("no hash of a storage version that is not served", get(old), { pick: entriesOf(plural) });
  },
};
