import type { CustomResourceDefinition } from "../api/crd.ts";
import { type JsonObject, objectIn, textIn } from "../api/json-fields.ts";
import type { CrdManifest } from "./crd-manifests.ts";

/** Whether the webhook that a file names converts the objects already. */
export function hasWebhookOf(manifest: CrdManifest, live: CustomResourceDefinition): boolean {
  const [wanted, known] = [clientConfigIn(conversionOf(manifest)), clientConfigIn(live.spec.conversion)];
  return wanted !== undefined && known !== undefined && isSameServer(wanted, known);
}

/** The `spec.conversion` of a file. */
export function conversionOf({ object }: CrdManifest): JsonObject | undefined {
  return objectIn(objectIn(object["spec"])?.["conversion"]);
}

/** How API servers reach the webhook of a `spec.conversion`. */
export function clientConfigIn(conversion: JsonObject | undefined): JsonObject | undefined {
  return objectIn(objectIn(conversion?.["webhook"])?.["clientConfig"]);
}

/** Whether two `clientConfig`s name one server, whatever their CA bundles are. */
export function isSameServer(one: JsonObject, other: JsonObject | undefined): boolean {
  const [service, otherService] = [objectIn(one["service"]), objectIn(other?.["service"])];
  const isSame = (field: string): boolean => service?.[field] === otherService?.[field];
  return one["url"] === other?.["url"] && isSame("namespace") && isSame("name");
}

/** The webhook of a `spec.conversion` and where it is, in words. */
export function webhookTextOf(conversion: JsonObject | undefined): string {
  const config = clientConfigIn(conversion);
  const { name, namespace } = objectIn(config?.["service"]) ?? {};
  const where = name === undefined ? textIn(config?.["url"]) : `Service ${textIn(namespace)}/${textIn(name)}`;
  return where === undefined ? "what converts them" : `the conversion webhook (${where})`;
}
