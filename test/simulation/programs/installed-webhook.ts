import { WEBHOOK_SERVICE } from "../../../src/api/names.ts";
import type { KeySource } from "../../../src/certs/issue.ts";
import { VALIDATE_PATH } from "../../../src/webhook/app.ts";
import { seededKeys } from "../world/seeded-keys.ts";
import { WebhookService } from "../world/sim-webhook-service.ts";
import type { World } from "../world/world.ts";

/** The namespace that the webhook is installed in. */
export const NAMESPACE = "kube-storage-migration";

/** What the replicas of the webhook in one world share. */
export interface InstalledWebhook {
  readonly service: WebhookService;
  readonly keys: KeySource;
}

const installed = new WeakMap<World, InstalledWebhook>();

/** The Service of a world's webhook; it is made when it is first asked for. */
export function installedIn(world: World): InstalledWebhook {
  let found = installed.get(world);
  if (found === undefined) {
    const name = { namespace: NAMESPACE, service: WEBHOOK_SERVICE, path: VALIDATE_PATH };
    const service = new WebhookService(world.cluster, name, world.streams("service"));
    found = { service, keys: seededKeys(world.streams("keys")) };
    installed.set(world, found);
  }
  return found;
}
