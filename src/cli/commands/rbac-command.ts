import { stringify } from "yaml";
import { KsvmError, messageOf } from "../../errors.ts";
import {
  rolesForCheck,
  rolesForEveryResource,
  rolesForRuns,
  type RoleObject,
  rulesForController,
  type RunRoleOptions,
} from "../rbac-roles.ts";
import { DEFAULT_LEASE_NAMESPACE } from "../../migrator/run-lease.ts";
import { parseResources } from "../flags/address-parsers.ts";
import type { FlagsOf, FlagTable } from "../flags/flag.ts";
import { choice, optional, toggle, value } from "../flags/kinds.ts";
import { anyNames } from "../flags/operands.ts";
import { anyText, parseServiceAccount } from "../flags/parsers.ts";
import { EXIT } from "../render/exit-codes.ts";
import { printable } from "../render/printable.ts";
import { defineCommand } from "../shared/command.ts";

const RBAC_FLAGS = {
  all: toggle({
    help:
      "print the roles of ksvm reencrypt --all. Their holder can read and change every object of the cluster, every " +
      "Secret and role included",
  }),
  for: choice(["runs", "check"], {
    placeholder: "purpose",
    default: "runs",
    help:
      "runs are ksvm migrate and reencrypt; check is ksvm check -f of files with these CRDs: with --service-account, " +
      "a policy that allows it dry runs of CRDs alone",
  }),
  name: optional(anyText, {
    placeholder: "name",
    help: "name of the roles; if not set, ksvm-migrate or ksvm-check by their purpose",
  }),
  "service-account": optional(parseServiceAccount, {
    placeholder: "namespace/name",
    help: "bind the roles to this ServiceAccount; if not set, print roles only",
  }),
  "lease-namespace": value(anyText, {
    placeholder: "namespace",
    default: DEFAULT_LEASE_NAMESPACE,
    help: "the --lease-namespace of the migrations",
  }),
  output: choice(["roles", "component", "values"], {
    short: "o",
    placeholder: "format",
    default: "roles",
    help:
      "component is a Kustomize component that limits deploy/base to the resources; values does the same for the " +
      "Helm chart",
  }),
} satisfies FlagTable;

/** Two, so that the roles of one purpose do not take the place of those of the other. */
const DEFAULT_NAMES = { runs: "ksvm-migrate", check: "ksvm-check" } as const;

/** `ksvm rbac`: prints the roles under which the resources can be migrated. It asks no API server. */
export const RBAC_COMMAND = defineCommand({
  path: "rbac",
  description: "Print the least rights that migrating the resources takes, as YAML. Contacts no cluster.",
  examples: ["ksvm rbac widgets.example.com --service-account ops/migrator | kubectl apply -f -"],
  operands: anyNames("plural.group of a CRD or a built-in resource"),
  flags: RBAC_FLAGS,
  run: async (io, flags, given) => {
    assertUsable(flags, given);
    const names = flags.all ? [] : [...new Set(given.flatMap(resourcesIn))];
    const name = flags.name ?? DEFAULT_NAMES[flags.for];
    const documents = flags.output === "roles" ? rolesOf(names, { ...flags, name }) : [LIMITS[flags.output](names)];
    io.stdout.write(printable(documents.map((document) => stringify(document)).join("---\n")));
    return EXIT.done;
  },
});

/** @throws {KsvmError} Usage for what can be no resource's name. */
function resourcesIn(given: string): readonly string[] {
  try {
    return parseResources(given);
  } catch (error) {
    throw new KsvmError("Usage", `Cannot print roles for ${JSON.stringify(given)}: ${messageOf(error)}`);
  }
}

/** @throws {KsvmError} Usage for flags that do not go together. */
function assertUsable({ all, for: purpose, output }: FlagsOf<typeof RBAC_FLAGS>, given: readonly string[]): void {
  if (all === given.length > 0) {
    throw new KsvmError("Usage", "Cannot print roles: name the resources, or pass --all without names");
  }
  if (all && output !== "roles") {
    throw new KsvmError("Usage", "Cannot limit an installation to every resource: deploy/base has those rights");
  }
  if (purpose === "check" && (all || output !== "roles")) {
    throw new KsvmError("Usage", "Cannot print roles for check: name the CRDs, without --all and with -o roles");
  }
}

interface Subject {
  readonly namespace: string;
  readonly name: string;
}

function rolesOf(
  names: readonly string[],
  {
    all,
    for: purpose,
    serviceAccount,
    ...options
  }: RunRoleOptions & {
    readonly all: boolean;
    readonly for: "runs" | "check";
    readonly serviceAccount?: Subject | undefined;
  },
): readonly object[] {
  if (purpose === "check") {
    return checkRolesOf(names, options.name, serviceAccount);
  }
  const roles = all ? rolesForEveryResource(options) : rolesForRuns(names, options);
  return serviceAccount === undefined ? roles : [...roles, ...roles.map((role) => bindingOf(role, serviceAccount))];
}

function checkRolesOf(names: readonly string[], name: string, subject: Subject | undefined): readonly object[] {
  const username = subject && `system:serviceaccount:${subject.namespace}:${subject.name}`;
  const { role, policies } = rolesForCheck(names, name, username);
  // The policy first: it is in force a moment after it is there.
  return [...policies, role, ...(subject === undefined ? [] : [bindingOf(role, subject)])];
}

function bindingOf({ apiVersion, kind, metadata }: RoleObject, subject: Subject): object {
  return {
    apiVersion,
    kind: `${kind}Binding`,
    metadata,
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind, name: metadata.name },
    subjects: [{ kind: "ServiceAccount", ...subject }],
  };
}

/**
 * Narrows the role and the trigger by one list, so that the trigger creates no migration that the role does not allow.
 */
function componentOf(names: readonly string[]): object {
  const rules = { op: "replace", path: "/rules", value: rulesForController(names) };
  const flag = {
    op: "add",
    path: "/spec/template/spec/containers/0/args/-",
    value: `--trigger-only-resources=${names.join(",")}`,
  };
  return {
    apiVersion: "kustomize.config.k8s.io/v1alpha1",
    kind: "Component",
    patches: [
      { target: { kind: "ClusterRole", name: "system:storage-migrator" }, patch: jsonPatchOf(rules) },
      { target: { kind: "Deployment", name: "ksvm-controller" }, patch: jsonPatchOf(flag) },
    ],
  };
}

/** The same as values of the Helm chart. */
function valuesOf(names: readonly string[]): object {
  return { only: { resources: names, rules: rulesForController(names) } };
}

/** What limits an installation, by the value of `--output`. */
const LIMITS = { component: componentOf, values: valuesOf } as const;

/** A JSON patch of one operation, as Kustomize has it in a text. */
function jsonPatchOf(operation: object): string {
  return stringify([operation]).trimEnd();
}
