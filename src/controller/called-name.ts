import { hostIn, serverNameOf } from "../certs/service-names.ts";
import type { ServingSettings } from "./settings.ts";

/** The DNS name or IP address by which API servers call the webhook. */
export function calledName({ certificates, webhook }: Pick<ServingSettings, "certificates" | "webhook">): string {
  return webhook.url === undefined ? serverNameOf(certificates) : hostIn(webhook.url);
}
