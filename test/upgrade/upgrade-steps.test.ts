import tap from "tap";
import { UPGRADE_FIELD_MANAGER } from "../../src/api/names.ts";
import type { JsonObject } from "../../src/api/json-fields.ts";
import type { CrdManifest } from "../../src/plan/crd-manifests.ts";
import { planUpgrade, type UpgradeStep } from "../../src/upgrade/upgrade-steps.ts";
import { type CrdTraits, crdWith } from "../api/crd-with.ts";
import { fileWith } from "../plan/check-situation.ts";

const WEBHOOK = { strategy: "Webhook", webhook: { clientConfig: { service: { namespace: "a", name: "b" } } } };

function fileOf(versions: readonly string[], conversion?: JsonObject): CrdManifest {
  const file = fileWith(versions);
  return conversion === undefined
    ? file
    : { ...file, object: { ...file.object, spec: { ...(file.object["spec"] as JsonObject), conversion } } };
}

/** What a step writes: its versions, with `+` behind the storage version, and how objects are converted. */
function written({ kind, spec }: UpgradeStep): string {
  const versions = (spec?.["versions"] ?? []) as readonly { readonly name: string; readonly storage: boolean }[];
  const strategy = (spec?.["conversion"] as { readonly strategy?: string } | undefined)?.strategy;
  return [kind, versions.map(({ name, storage }) => (storage ? `${name}+` : name)).join(","), strategy]
    .filter((part) => part !== undefined && part !== "")
    .join(" ");
}

type Case = readonly [
  name: string,
  live: CrdTraits | undefined,
  file: CrdManifest,
  isApplied: boolean,
  steps: readonly string[],
];

const cases: readonly Case[] = [
  ["a CRD that is not there is created", undefined, fileOf(["v1+"]), true, ["apply v1+", "hand-over"]],
  ["nothing is left without --apply where the CRD is not there", undefined, fileOf(["v1+"]), false, []],
  ["a file that keeps what is stored needs no step", {}, fileOf(["v1", "v2+"]), false, []],
  ["such a file is applied", {}, fileOf(["v1", "v2+"]), true, ["apply v1,v2+", "hand-over"]],
  [
    "objects are migrated before their version leaves",
    {},
    fileOf(["v2+"]),
    true,
    ["migrate", "apply v2+", "hand-over"],
  ],
  [
    "so they are where storedVersions no longer lists it",
    { storedVersions: ["v2"] },
    fileOf(["v2+"]),
    true,
    ["migrate", "apply v2+", "hand-over"],
  ],
  [
    "a version of the file alone is served, then stored, before the old one leaves",
    { versions: ["v1+"], storedVersions: ["v1"] },
    fileOf(["v2+"]),
    true,
    ["serve v1+,v2", "flip v1,v2+", "migrate", "apply v2+", "hand-over"],
  ],
  [
    "a version that is there is stored before the old one leaves",
    { versions: ["v1+", "v2"], storedVersions: ["v1"] },
    fileOf(["v2+"]),
    false,
    ["flip v1,v2+", "migrate", "hand-over"],
  ],
  [
    "objects are migrated before the file takes their conversion away",
    { conversion: WEBHOOK },
    fileOf(["v1", "v2+"]),
    true,
    ["migrate", "apply v1,v2+", "hand-over"],
  ],
  [
    "while the storage version changes, the webhook of the cluster goes on to convert",
    { conversion: WEBHOOK, versions: ["v1+", "v2"], storedVersions: ["v1"] },
    fileOf(["v1", "v2+"]),
    true,
    ["flip v1,v2+ Webhook", "migrate", "apply v1,v2+", "hand-over"],
  ],
  [
    "a file that keeps the webhook takes no step for it",
    { conversion: WEBHOOK },
    fileOf(["v1", "v2+"], WEBHOOK),
    true,
    ["apply v1,v2+ Webhook", "hand-over"],
  ],
  [
    "a new version is served before it is stored where a webhook of the file converts, also beside the old one",
    { versions: ["v1+"], storedVersions: ["v1"] },
    fileOf(["v1", "v2+"], WEBHOOK),
    true,
    ["serve v1+,v2 Webhook", "apply v1,v2+ Webhook", "hand-over"],
  ],
  [
    "a version that is not served yet is served before it is stored, too",
    { conversion: WEBHOOK, versions: ["v1+", "v2-"], storedVersions: ["v1"] },
    fileOf(["v1", "v2+"], WEBHOOK),
    true,
    ["serve v1+,v2 Webhook", "apply v1,v2+ Webhook", "hand-over"],
  ],
  [
    "a version that is not served yet is served before it is stored and the old one leaves",
    { conversion: WEBHOOK, versions: ["v1+", "v2-"], storedVersions: ["v1"] },
    fileOf(["v2+"], WEBHOOK),
    true,
    ["serve v1+,v2 Webhook", "flip v1,v2+ Webhook", "migrate", "apply v2+ Webhook", "hand-over"],
  ],
  [
    "a webhook that is new in the file converts before objects are stored in another version",
    { versions: ["v1+", "v2"], storedVersions: ["v1"] },
    fileOf(["v1", "v2+"], WEBHOOK),
    true,
    ["serve v1+,v2 Webhook", "apply v1,v2+ Webhook", "hand-over"],
  ],
  [
    "a storage version that the file does not serve is not waited for",
    { conversion: WEBHOOK, versions: ["v1+", "v2-"], storedVersions: ["v1"] },
    fileOf(["v1", "v2+-"], WEBHOOK),
    true,
    ["apply v1,v2+ Webhook", "hand-over"],
  ],
  [
    "an older version is migrated before that",
    { versions: ["v0", "v1+"], storedVersions: ["v0", "v1"] },
    fileOf(["v1", "v2+"], WEBHOOK),
    true,
    ["migrate", "serve v0,v1+,v2 Webhook", "apply v1,v2+ Webhook", "hand-over"],
  ],
  [
    "such a file is left to its own client without --apply",
    { versions: ["v1+"], storedVersions: ["v1"] },
    fileOf(["v1", "v2+"], WEBHOOK),
    false,
    [],
  ],
  [
    "what an earlier call wrote is handed over",
    { storedVersions: ["v2"], metadata: { managedFields: [{ manager: UPGRADE_FIELD_MANAGER }] } },
    fileOf(["v1", "v2+"]),
    false,
    ["hand-over"],
  ],
];

for (const [name, live, file, isApplied, steps] of cases) {
  await tap.test(`planUpgrade(): ${name}`, async (t) => {
    const plan = planUpgrade(file, live && crdWith(live), isApplied);
    t.equal(plan.refusal, undefined);
    t.same(plan.steps.map(written), steps);
  });
}

await tap.test("planUpgrade() refuses a new version that nothing would convert to", async (t) => {
  const live = crdWith({ conversion: WEBHOOK, versions: ["v1+"], storedVersions: ["v1"] });
  t.match(planUpgrade(fileOf(["v2+"]), live, true), { steps: [], refusal: /nothing would convert them to v2/ });
  t.equal(planUpgrade(fileOf(["v2+"], WEBHOOK), live, true).refusal, undefined);
});

await tap.test("planUpgrade() keeps the CA bundle that another client wrote for the same webhook", async (t) => {
  const clientConfig = { ...WEBHOOK.webhook.clientConfig, caBundle: "Zm9v" };
  const live = crdWith({ conversion: { ...WEBHOOK, webhook: { clientConfig } }, storedVersions: ["v2"] });
  const bundleOf = (file: CrdManifest): unknown => {
    const [apply] = planUpgrade(file, live, true).steps;
    const conversion = apply?.spec?.["conversion"] as typeof WEBHOOK | undefined;
    return conversion?.webhook.clientConfig;
  };
  t.same(bundleOf(fileOf(["v1", "v2+"], WEBHOOK)), clientConfig);
  const other = { service: { namespace: "a", name: "other" } };
  t.same(bundleOf(fileOf(["v1", "v2+"], { ...WEBHOOK, webhook: { clientConfig: other } })), other);
});
