import { readFileSync } from "node:fs";
import tap from "tap";
import { parseAllDocuments } from "yaml";
import { COMMANDS } from "../../src/cli/commands/all-commands.ts";

const root = new URL("../../", import.meta.url);

function read(path: string): string {
  return readFileSync(new URL(path, root), "utf8");
}

const objects = read("deploy/chart/templates/_objects.tpl");

/** What a template of the chart is made of, once those that it includes are put in. */
function templateNamed(name: string): string {
  const [, text = ""] = new RegExp(`define "${name.replaceAll(".", "\\.")}" -}}\\n(.*)\\n`).exec(objects) ?? [];
  return text.replaceAll(/{{ include "([\w.]+)" \. }}/g, (_, included: string) => templateNamed(included));
}

function flagsOf(path: string): readonly string[] {
  return Object.keys(COMMANDS.find((command) => command.path === path)?.flags ?? {});
}

await tap.test("the chart gives each pod those of extraArgs that its command has", async (t) => {
  const [, refused = ""] = /regexMatch "\^--\(([^)]+)\)\(\[= \]\|\$\)"/.exec(objects) ?? [];
  t.ok(refused.split("|").includes("webhook-port"), "those that the chart sets");
  const given = new Set(flagsOf("controller").filter((name) => !refused.split("|").includes(name)));
  const passed = templateNamed("ksvm.certificateFlags").split("|");
  t.equal(new Set(passed).size, passed.length);
  for (const path of ["certs ensure", "certs rotate"]) {
    t.same(new Set(passed), new Set(flagsOf(path).filter((name) => given.has(name))), `ksvm ${path}`);
  }
});

interface Rendered {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly hard: { readonly pods: string };
    readonly strategy: { readonly rollingUpdate: { readonly maxSurge: number; readonly maxUnavailable: number } };
    readonly template: { readonly spec: { readonly priorityClassName?: string } };
  };
}

function documentsOf(path: string): readonly Rendered[] {
  return parseAllDocuments(read(path)).map((document) => document.toJS() as Rendered);
}

await tap.test(
  "the quota of critical pods lets the Deployment be upgraded, with as many replicas as the chart takes",
  async (t) => {
    const schema = JSON.parse(read("deploy/chart/values.schema.json")) as {
      readonly properties: { readonly replicas: { readonly maximum: number } };
    };
    const { maximum } = schema.properties.replicas;
    const deployments = documentsOf("deploy/base/controller.yaml").filter(({ kind }) => kind === "Deployment");
    t.same(
      deployments.map(({ metadata }) => metadata.name),
      ["ksvm-controller"],
    );
    let most = 0;
    for (const { spec } of deployments) {
      t.equal(spec.template.spec.priorityClassName, "system-cluster-critical");
      // A pod that was told to end counts until its grace period is over, and the next new one does not wait for that:
      // https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/quota/v1/evaluator/core/pods.go
      most += maximum + spec.strategy.rollingUpdate.maxSurge + maximum;
    }
    const [quota] = documentsOf("deploy/base/priority.yaml");
    t.equal(Number(quota?.spec.hard.pods), most);
    t.notMatch(read("deploy/base/certificates.yaml"), "priorityClassName", "it does not count");
  },
);
