import type { ReplicaAddress } from "../../certs/replicas.ts";
import { InvalidValue } from "./flag.ts";

/**
 * Reads `--apiserver-endpoints`: a comma-separated list of URLs, each with a path if the API server has one.
 * @throws {InvalidValue} if one is not an https URL, or comes twice: the user meant another one, which would never be
 *   asked.
 */
export function parseEndpoints(text: string): readonly string[] {
  const urls = text.split(",").map((part) => {
    const url = httpsUrlOf(part.trim());
    if (url === undefined) {
      throw new InvalidValue('a comma-separated list of https URLs, such as "https://10.0.0.1:6443"');
    }
    return `${url.origin}${url.pathname}`.replace(/\/+$/, "");
  });
  const twice = urls.find((url, index) => urls.indexOf(url) < index);
  if (twice !== undefined) {
    throw new InvalidValue(`the URL of each API server once, and ${twice} comes twice`);
  }
  return urls;
}

/**
 * Reads `--server`, as a kubeconfig has it: a URL, with a path or without, and for `host` and `host:port` plain http,
 * as client-go does. `localhost:8001` is what `kubectl proxy` listens on.
 *
 * @returns without a slash at its end
 * @throws {InvalidValue} if it is no URL of an API server.
 */
export function parseServer(text: string): string {
  const isUrl = /^[a-z][a-z0-9+.-]*:\/\//i.test(text);
  const url = URL.parse(isUrl ? text : `http://${text}`);
  const isUsable = url !== null && ["http:", "https:"].includes(url.protocol) && url.hostname !== "";
  if (!isUsable || (!isUrl && url.pathname !== "/") || url.search !== "" || url.hash !== "") {
    throw new InvalidValue('the URL of an API server, such as "https://10.0.0.1:6443"');
  }
  return `${url.origin}${url.pathname}`.replace(/\/+$/, "");
}

/** Reads the URL of the webhook. @throws {InvalidValue} if API servers would not accept it. */
export function parseWebhookUrl(text: string): string {
  const url = httpsUrlOf(text);
  if (url === undefined) {
    throw new InvalidValue('an https URL without a query, such as "https://192.0.2.1:9443/validate"');
  }
  return url.href;
}

function httpsUrlOf(text: string): URL | undefined {
  const url = URL.parse(text);
  const isPlain = url?.protocol === "https:" && url.search === "" && url.hash === "" && url.username === "";
  return isPlain ? url : undefined;
}

/** Reads addresses such as `10.0.0.1:8443,[fd00::1]:8443`. @throws {InvalidValue} */
export function parseAddresses(text: string): readonly ReplicaAddress[] {
  return text.split(",").map((part) => {
    const [, bracketed, plain, port] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]/\s]+)):(\d{1,5})$/.exec(part.trim()) ?? [];
    const host = bracketed ?? plain;
    if (host === undefined || Number(port) < 1 || Number(port) > 65_535) {
      throw new InvalidValue('a comma-separated list of HOST:PORT, such as "10.0.0.1:8443,[fd00::1]:8443"');
    }
    return { host, port: Number(port) };
  });
}

/** Reads a comma-separated list of names. @throws {InvalidValue} if one is empty or contains a space. */
export function parseNames(text: string): readonly string[] {
  return text.split(",").map((part) => {
    const name = part.trim();
    if (!/^[\w*.:-]+$/.test(name)) {
      throw new InvalidValue('a comma-separated list of DNS names or IP addresses, such as "webhook.example.com"');
    }
    return name;
  });
}

/**
 * Reads a comma-separated list of API groups; `core` is the one without a name.
 * @throws {InvalidValue} if one is not a DNS name.
 */
export function parseGroups(text: string): readonly string[] {
  return text.split(",").map((part) => {
    const group = part.trim();
    if (!/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(group)) {
      throw new InvalidValue('a comma-separated list of API groups, such as "example.com,core"');
    }
    return group === "core" ? "" : group;
  });
}

/** Resources, such as `widgets.example.com,secrets`: `plural.group`, the plural alone in the core group. */
export function parseResources(text: string): readonly string[] {
  return text.split(",").map((part) => {
    const name = part.trim();
    if (!/^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/.test(name)) {
      throw new InvalidValue('a comma-separated list of resources, such as "widgets.example.com,secrets"');
    }
    return name;
  });
}
