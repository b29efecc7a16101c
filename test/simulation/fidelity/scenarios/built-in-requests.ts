import {
  ACCEPT_METADATA,
  ACCEPT_METADATA_LIST,
  APPLY_PATCH,
  type Resource,
  SECRETS,
  STORAGE_VERSIONS,
  WEBHOOK_CONFIGURATIONS,
  collectionPath,
  objectPath,
} from "../../../../src/kube/resources.ts";
import { type WebhookClientConfig, webhookConfigurationOf } from "../../../../src/webhook/webhook-configuration.ts";
import type { Json, LineRequest } from "../line.ts";
import { apply, get, merge, metadataOf, post, put, remove, stateOf } from "../script-requests.ts";
import type { Scenario } from "../script-scenario.ts";

const CONFIG_MAPS: Resource = { group: "", version: "v1", resource: "configmaps" };
const NAMESPACE = "default";

const SCRIPTED = "script.example.com";
/** Longer than the times of managedFields can tell. */
const SECOND_MS = 1_100;

/** The hash and the verbs of a built-in resource. */
function entryOf(wanted: string): (body: Json) => unknown {
  return ({ groupVersion, kind, resources }) => {
    const {
      kind: itsKind,
      namespaced,
      storageVersionHash,
      verbs,
    } = resources.find(({ name }: Json) => name === wanted);
    return { kind, groupVersion, itsKind, namespaced, storageVersionHash, verbs };
  };
}

const names = ({ items, ...list }: Json): unknown => ({
  ...list,
  items: items.map(({ metadata }: Json) => metadata.name),
});

export const builtIns: Scenario = {
  name: "built-in resources",
  async play(play) {
    for (const [path, name] of [
      ["/api/v1", "secrets"],
      ["/api/v1", "configmaps"],
      ["/apis/apps/v1", "deployments"],
      ["/apis/storage.k8s.io/v1", "volumeattributesclasses"],
    ] as const) {
      await play.line(`${path} lists ${name}`, get(path), { pick: entryOf(name) });
    }
    await play.line(
      "the StorageVersion API is not served",
      get(objectPath(STORAGE_VERSIONS, { name: "core.secrets" })),
    );
    await play.line(
      "nor is the in-tree migrator",
      get("/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations"),
    );
    await play.line("a list of Deployments", get("/apis/apps/v1/deployments", { query: { limit: 500 } }));
    const slices = { labelSelector: "kubernetes.io/service-name=kubernetes" };
    await play.line(
      "a list of EndpointSlices",
      get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", { query: slices }),
    );

    const own = collectionPath(CONFIG_MAPS, NAMESPACE);
    const at = (name: string): string => objectPath(CONFIG_MAPS, { namespace: NAMESPACE, name });
    const configMap = (name: string): Json => ({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name, namespace: NAMESPACE, labels: { of: "script" } },
      data: { a: "b" },
    });
    const created = await play.line("create a ConfigMap", post(own, configMap("one")));
    for (const name of ["two", "three"]) await play.line(`create ${name}`, post(own, configMap(name)));
    const part = (more: Json, fieldManager: string): LineRequest =>
      apply(
        at("parts"),
        { apiVersion: "v1", kind: "ConfigMap", ...more, metadata: { name: "parts", ...more.metadata } },
        { fieldManager },
      );
    await play.line("one manager applies data", part({ data: { a: "b" } }, "one"));
    await play.world.pause(SECOND_MS);
    await play.line("another one applies a label", part({ metadata: { labels: { a: "b" } } }, "two"));
    await play.world.pause(SECOND_MS);
    await play.line("the first one applies the same again", part({ data: { a: "b" } }, "one"));
    const identity = (name: string, state: object): Json => ({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name, namespace: NAMESPACE, ...state },
    });
    const noOp = (state: object): LineRequest => ({
      ...apply(at("one"), identity("one", state)),
      accept: ACCEPT_METADATA,
    });
    await play.line("a no-op apply of it writes nothing", noOp(stateOf(created)));
    const changed = await play.line("a change", merge(at("one"), { data: { a: "c" } }));
    await play.line("a no-op apply with a stale resourceVersion", noOp(stateOf(created)));
    await play.line("an apply of one that is gone, with a uid", {
      ...apply(at("gone"), identity("gone", { uid: stateOf(created).uid })),
    });
    const page = (token?: string) =>
      get(own, { accept: ACCEPT_METADATA_LIST, query: { limit: 2, labelSelector: "of=script", continue: token } });
    const first = await play.line("a page of metadata", page(), { pick: names });
    await play.line("the next page", page(first.body.metadata.continue), { pick: names });
    await play.line("a list of whole objects", get(own, { query: { labelSelector: "of=script" } }), { pick: names });
    await play.line("an empty list of whole objects", get(own, { query: { labelSelector: "of=nobody" } }));
    await play.line(
      "an empty list of metadata",
      get(own, { accept: ACCEPT_METADATA_LIST, query: { labelSelector: "of=nobody" } }),
    );
    await play.line(
      "a list by name",
      get(own, { accept: ACCEPT_METADATA_LIST, query: { fieldSelector: "metadata.name=two" } }),
    );
    await play.line("delete with a stale resourceVersion", remove(at("one"), stateOf(created)));
    await play.line("delete", remove(at("one"), stateOf(changed)));
    await play.line("read what is gone", get(at("one")));
  },
};

export const certificates: Scenario = {
  name: "the Secret and the caBundle of the webhook",
  async play(play) {
    const name = "ksvm-webhook-tls";
    const at = objectPath(SECRETS, { namespace: NAMESPACE, name });
    const secret = (state: object, value: string): Json => ({
      apiVersion: "v1",
      kind: "Secret",
      type: "kubernetes.io/tls",
      metadata: { name, namespace: NAMESPACE, ...state },
      data: { "tls.crt": value, "tls.key": value },
    });
    await play.line("no Secret is there", get(at));
    const created = await play.line("create the Secret", post(collectionPath(SECRETS, NAMESPACE), secret({}, "b25l")));
    await play.line("create it again", post(collectionPath(SECRETS, NAMESPACE), secret({}, "b25l")));
    const replaced = await play.line("replace it", put(at, secret(stateOf(created), "dHdv")));
    await play.line("replace it with a stale resourceVersion", put(at, secret(stateOf(created), "dGhyZWU=")));
    await play.line("replace it with the same: nothing is written", put(at, secret(stateOf(replaced), "dHdv")));
    await play.line("delete it", remove(at, { uid: metadataOf(created).uid }));
    await play.line("replace what is gone", put(at, secret(stateOf(replaced), "dHdv")));

    // That of ksvm, for a resource that there is none of: it is the business of others to be in force.
    const configuration = (clientConfig: WebhookClientConfig): Json => {
      const { metadata, webhooks, ...whole } = webhookConfigurationOf({ clientConfig });
      const [webhook] = webhooks as readonly Json[];
      const rules = [{ ...webhook.rules[0], apiGroups: ["none.example.com"] }];
      return { ...whole, metadata: { ...metadata, name: SCRIPTED }, webhooks: [{ ...webhook, name: SCRIPTED, rules }] };
    };
    const path = objectPath(WEBHOOK_CONFIGURATIONS, { name: SCRIPTED });
    const put2 = (fieldManager: string, body: Json): LineRequest => ({
      method: "PATCH",
      path,
      body,
      query: { fieldManager, force: true },
      contentType: APPLY_PATCH,
    });
    const facts = {
      pick: ({ metadata, webhooks }: Json) => ({
        metadata,
        clientConfig: webhooks[0].clientConfig,
        count: webhooks.length,
      }),
    };
    const service = { service: { namespace: NAMESPACE, name: "ksvm-webhook", path: "/validate", port: 443 } };
    const installed = await play.line(
      "the keeper applies the configuration",
      put2("ksvm-keeper", configuration(service)),
      facts,
    );
    await play.line("it applies it again: nothing is written", put2("ksvm-keeper", configuration(service)), facts);
    const bundle = (state: object, caBundle: string): Json => ({
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: SCRIPTED, ...state },
      webhooks: [{ name: SCRIPTED, clientConfig: { caBundle } }],
    });
    // managedFields are in the order of times, which are cut to the second.
    await play.world.pause(SECOND_MS);
    const published = await play.line(
      "another manager applies the caBundle alone",
      put2("ksvm-ca", bundle(stateOf(installed), CA)),
      facts,
    );
    await play.line("it does so with a stale resourceVersion", put2("ksvm-ca", bundle(stateOf(installed), CA)));
    await play.world.pause(SECOND_MS);
    const moved = await play.line(
      "the keeper applies the same: nothing is written, and the caBundle stays",
      put2("ksvm-keeper", configuration(service)),
      facts,
    );
    await play.line(
      "a merge patch puts in what a user changed",
      merge(
        path,
        {
          metadata: { resourceVersion: stateOf(moved).resourceVersion },
          webhooks: configuration(service).webhooks,
        },
        { fieldManager: "ksvm-keeper" },
      ),
      facts,
    );
    await play.line(
      "a list of it",
      get(collectionPath(WEBHOOK_CONFIGURATIONS), {
        accept: ACCEPT_METADATA_LIST,
        query: { fieldSelector: `metadata.name=${SCRIPTED}` },
      }),
    );
    await play.line("delete it", remove(path));
    await play.line("the caBundle with the uid of what is gone", put2("ksvm-ca", bundle(stateOf(published), CA)));
  },
};

/** A certificate, which the API server wants a caBundle to have; base64 of its PEM text. */
const CA = Buffer.from("# no certificate: only its form is looked at\n").toString("base64");
