import type { CrdVersion } from "../../crd.ts";
import { MIGRATING, OWNER } from "../../../src/freeze/rule.ts";
import { CRDS, MERGE_PATCH as MERGE } from "../../../src/kube/objects.ts";
import type { Random } from "../../chaos/random.ts";
import type { ModelObject } from "../model/etcd.ts";
import type { KindPlan } from "../plan.ts";
import type { SimCluster } from "./cluster.ts";
import { collectionOf, crdNameOf, crdOf, GROUP, groupOf, objectOf, versionsOf } from "./kinds.ts";

/** How long users wait for an answer, in milliseconds. */
const PATIENCE_MS = 70_000;

/** How a user edits the metadata of a CRD. */
export type CrdEdit = "freeze" | "unfreeze" | "takeOwner" | "label";

/** What an API server answered to a user. */
export interface Answered {
  readonly status: number;
  /** As JSON has it. */
  readonly body: ModelObject;
}

/** What a webhook sees. */
export interface WebhookRule {
  readonly group: string;
  /** Subresources have entries of their own: `widgets` is not `widgets/status`. */
  readonly resources: readonly string[];
  /** @default those that write */
  readonly operations?: readonly ("CREATE" | "UPDATE" | "DELETE")[];
}

/** Every write of the objects of a kind. */
export function objectsRule(kind: KindPlan): WebhookRule {
  return { group: groupOf(kind), resources: [kind.plural] };
}

/** What of a webhook a user chooses. */
export interface WebhookShape {
  /** @default false */
  readonly isMutating?: boolean;
  /** Whether its failures are ignored. @default false */
  readonly isIgnored?: boolean;
  /** @default 5 */
  readonly timeoutSeconds?: number;
}

/** What users and other programs do to a cluster. Each may fail, as for a user: they do not try again. */
export class UserActions {
  readonly #cluster: SimCluster;
  readonly #name: string;
  readonly #random: Random;
  #values = 0;

  constructor(cluster: SimCluster, name: string, random: Random) {
    this.#cluster = cluster;
    this.#name = name;
    this.#random = random;
  }

  createNamespace(name: string): Promise<Answered | undefined> {
    return this.send("POST", "/api/v1/namespaces", { apiVersion: "v1", kind: "Namespace", metadata: { name } });
  }

  createCrd(kind: KindPlan, storage: string): Promise<Answered | undefined> {
    return this.send("POST", CRDS, crdOf(kind, storage));
  }

  deleteCrd(kind: KindPlan): Promise<Answered | undefined> {
    return this.send("DELETE", `${CRDS}/${crdNameOf(kind)}`);
  }

  /** Changes the storage version. */
  flip(kind: KindPlan, to: string): Promise<Answered | undefined> {
    const path = `${CRDS}/${crdNameOf(kind)}`;
    const operations = versionsOf(kind.versions, to).map(({ storage }, index) => ({
      op: "replace",
      path: `/spec/versions/${index}/storage`,
      value: storage,
    }));
    return this.send("PATCH", path, operations, "application/json-patch+json");
  }

  /** Edits what is of no meaning to the API server. */
  annotate(kind: KindPlan, how: CrdEdit): Promise<Answered | undefined> {
    const path = `${CRDS}/${crdNameOf(kind)}`;
    if (how === "label") {
      return this.send("PATCH", path, { metadata: { labels: { edited: String(++this.#values) } } }, MERGE);
    }
    const annotations = {
      freeze: { [MIGRATING]: "by-hand" },
      unfreeze: { [MIGRATING]: null },
      takeOwner: { [OWNER]: null },
    }[how];
    return this.send("PATCH", path, { metadata: { annotations } }, MERGE);
  }

  create(kind: KindPlan, version: string, index: number): Promise<Answered | undefined> {
    return this.send("POST", collectionOf(kind, version), objectOf(kind, version, index, ++this.#values));
  }

  update(kind: KindPlan, version: string, index: number): Promise<Answered | undefined> {
    const value = ++this.#values;
    const path = `${collectionOf(kind, version)}/${kind.plural}-${index}`;
    return this.send("PATCH", path, { spec: { value } }, MERGE);
  }

  delete(kind: KindPlan, version: string, index: number): Promise<Answered | undefined> {
    return this.send("DELETE", `${collectionOf(kind, version)}/${kind.plural}-${index}`);
  }

  /** Installs a webhook that sees what its rule matches. */
  installWebhook(
    name: string,
    { group, operations = ["CREATE", "UPDATE"], resources }: WebhookRule,
    { url, ...shape }: WebhookShape & { url: string },
  ): Promise<Answered | undefined> {
    const { isIgnored = false, isMutating = false, timeoutSeconds = 5 } = shape;
    const rule = { apiGroups: [group], apiVersions: ["*"], operations, resources };
    const webhook = {
      name: `${name}.${GROUP}`,
      clientConfig: { url },
      rules: [rule],
      failurePolicy: isIgnored ? "Ignore" : "Fail",
      sideEffects: "None",
      admissionReviewVersions: ["v1"],
      timeoutSeconds,
    };
    return this.send("POST", pathOf(shape), {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: `${isMutating ? "Mutating" : "Validating"}WebhookConfiguration`,
      metadata: { name },
      webhooks: [webhook],
    });
  }

  removeWebhook(name: string, shape: WebhookShape = {}): Promise<Answered | undefined> {
    return this.send("DELETE", `${pathOf(shape)}/${name}`);
  }

  /** Changes fields of an object. */
  merge(path: string, patch: object): Promise<Answered | undefined> {
    return this.send("PATCH", path, patch, MERGE);
  }

  /** What a user put on, the user takes away: until it is done, or there is nothing left to do it to; not without end. */
  async insist(act: () => Promise<Answered | undefined>): Promise<void> {
    for (let tries = 0; tries < 300; tries++) {
      const answer = await act();
      if (answer?.status === 200 || answer?.status === 404) return;
      await this.#cluster.schedule.wait(1_000);
    }
  }

  /** Changes a CRD by what it is now; `change` gets its `spec.versions`. */
  async editVersions(
    kind: KindPlan,
    change: (versions: readonly CrdVersion[]) => readonly CrdVersion[],
  ): Promise<Answered | undefined> {
    const path = `${CRDS}/${crdNameOf(kind)}`;
    const found = await this.send("GET", path);
    const { versions } = (found?.body["spec"] ?? {}) as { readonly versions?: readonly CrdVersion[] };
    return versions === undefined
      ? found
      : await this.send("PATCH", path, { spec: { versions: change(versions) } }, MERGE);
  }

  /** Sends a request to one of the API servers, as a balancer does; `path` may have a query. `undefined` where there is none, or none answers in time. */
  send(method: string, path: string, body?: unknown, type = "application/json"): Promise<Answered | undefined> {
    const { promise, resolve } = Promise.withResolvers<Answered | undefined>();
    // One that crashes never answers.
    const cancel = this.#cluster.schedule.in(PATIENCE_MS, () => resolve(undefined));
    void this.#send(method, path, body, type).then(resolve);
    return promise.finally(cancel);
  }

  async #send(method: string, path: string, body: unknown, type: string): Promise<Answered | undefined> {
    const { nodes } = this.#cluster;
    const node = nodes[Math.floor(this.#random() * nodes.length)];
    if (node === undefined) return undefined;
    const [pathname = "", query = ""] = path.split("?");
    const answer = await node.handle({
      method,
      path: pathname,
      query: new URLSearchParams(query),
      headers: { "content-type": type, accept: "application/json", "user-agent": this.#name },
      body: body === undefined ? "" : JSON.stringify(body),
      user: this.#name,
    });
    return {
      status: answer.status,
      get body() {
        const text = typeof answer.body === "string" && answer.body.startsWith("{") ? answer.body : "{}";
        return JSON.parse(text) as ModelObject;
      },
    };
  }
}

function pathOf({ isMutating = false }: WebhookShape): string {
  const resource = `${isMutating ? "mutating" : "validating"}webhookconfigurations`;
  return `/apis/admissionregistration.k8s.io/v1/${resource}`;
}
