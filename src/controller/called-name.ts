import { hostIn, serverNameOf } from "../certs/service-names.ts";
import type { WebhookClientConfig } from "../webhook/webhook-configuration.ts";
import type { ServingSettings } from "./settings.ts";

/** The DNS name or IP address by which API servers call the webhook. */
export function calledName({ certificates, webhook }: Pick<ServingSettings, "certificates" | "webhook">): string {
  return webhook.url === undefined ? serverNameOf(certificates) : hostIn(webhook.url);
}

/** The same of what a configuration says; empty where its URL is none. */
export function nameCalledBy(config: WebhookClientConfig): string {
  if ("service" in config) {
    const { name, namespace } = config.service;
    return serverNameOf({ service: name, namespace });
  }
  return URL.canParse(config.url) ? hostIn(config.url) : "";
}
