// What one test file leaves on a control plane that files share is gone before the next file gets it.
import t from "tap";
import { ControlPlane } from "./control-plane.ts";
import { SharedControlPlanes } from "./shared.ts";

const planes = new SharedControlPlanes();
t.teardown(() => planes.stop());

const LEFT_BEHIND: readonly (readonly [path: string, object: object])[] = [
  ["/api/v1/namespaces/default/services", { metadata: { name: "left" }, spec: { ports: [{ port: 80 }] } }],
  ["/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", { metadata: { name: "apiserver-gone" }, spec: {} }],
  [
    "/apis/apiregistration.k8s.io/v1/apiservices",
    {
      metadata: { name: "v1.down.example.com" },
      spec: {
        group: "down.example.com",
        version: "v1",
        groupPriorityMinimum: 100,
        versionPriority: 1,
        insecureSkipTLSVerify: true,
        service: { name: "none", namespace: "default" },
      },
    },
  ],
  [
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    {
      metadata: { name: "lefts.example.com" },
      spec: {
        group: "example.com",
        scope: "Namespaced",
        names: { plural: "lefts", kind: "Left" },
        versions: [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema: { type: "object" } } }],
      },
    },
  ],
  [
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    {
      metadata: { name: "left" },
      spec: {
        matchConstraints: {
          resourceRules: [{ apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["secrets"] }],
        },
        validations: [{ expression: "false" }],
      },
    },
  ],
];

await t.test("what a file leaves behind is gone before the next one gets the control plane", async (t) => {
  const first = await planes.take();
  const controlPlane = ControlPlane.attach(first.attachment);
  // A busy API server may still be writing what it creates for itself.
  const keys = async (): Promise<readonly string[]> => {
    const entries = await controlPlane.stored.readPrefix("/registry/", { keysOnly: true });
    return entries.map(({ key }) => key).filter((key) => /left|gone|down\.example/.test(key));
  };
  t.same(await keys(), []);
  for (const [path, body] of LEFT_BEHIND) {
    const { status } = await controlPlane.request(path, { method: "POST", body });
    t.equal(status, 201, path);
  }
  t.ok((await keys()).length >= LEFT_BEHIND.length);
  first.release();
  const second = await planes.take();
  t.equal(planes.started, 1, "it is the same control plane");
  t.same(await keys(), []);
  second.release();
});
