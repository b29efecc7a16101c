import { BlockList, isIP } from "node:net";
import { clusterOf, type ConnectionConfig, environmentOf } from "./cluster-config.ts";

/** The proxy by which a server is reached, as the kubeconfig has it, or else the environment. */
export function proxyOf(config: ConnectionConfig, server: URL): string | undefined {
  const { proxyUrl = "" } = clusterOf(config);
  return proxyUrl === "" ? proxyFromEnvironment(server, environmentOf(config).variables) : proxyUrl;
}

/**
 * The proxy for a server by HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in upper or lower case, as Go's net/http finds it. A server
 * on this machine needs none.
 *
 * https://pkg.go.dev/golang.org/x/net/http/httpproxy
 */
export function proxyFromEnvironment(
  server: URL,
  variables: Readonly<Record<string, string | undefined>>,
): string | undefined {
  const name = server.protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY";
  const proxy = valueOf(variables, name);
  return proxy === "" || isExcluded(server, valueOf(variables, "NO_PROXY")) ? undefined : proxy;
}

function valueOf(variables: Readonly<Record<string, string | undefined>>, name: string): string {
  const upper = variables[name] ?? "";
  return upper === "" ? (variables[name.toLowerCase()] ?? "") : upper;
}

function isExcluded(server: URL, noProxy: string): boolean {
  const host = server.hostname
    .replace(/^\[(.*)\]$/, "$1")
    .replace(/\.$/, "")
    .toLowerCase();
  const port = server.port === "" ? defaultPort(server) : server.port;
  if (host === "localhost" || isWithin(host, host.includes(":") ? "::1/128" : "127.0.0.0/8")) {
    return true;
  }
  return noProxy.split(",").some((part) => matches(part.trim().toLowerCase(), host, port));
}

function defaultPort({ protocol }: URL): string {
  return protocol === "https:" ? "443" : "80";
}

function matches(pattern: string, host: string, port: string): boolean {
  if (pattern === "" || pattern === "*") {
    return pattern === "*";
  }
  if (pattern.includes("/")) {
    return isWithin(host, pattern);
  }
  const [, name = pattern, onlyPort] = /^(.*?)(?::(\d+))?$/.exec(isIP(pattern) === 6 ? `[${pattern}]` : pattern) ?? [];
  if (onlyPort !== undefined && onlyPort !== port) {
    return false;
  }
  const wanted = name.replace(/^\[(.*)\]$/, "$1").replace(/^\*\./, ".");
  return isIP(wanted) > 0 ? wanted === host : isName(wanted, host);
}

/** `example.com` stands for itself and everything below it, `.example.com` for what is below it alone. */
function isName(wanted: string, host: string): boolean {
  return wanted.startsWith(".") ? host.endsWith(wanted) : host === wanted || host.endsWith(`.${wanted}`);
}

function isWithin(host: string, cidr: string): boolean {
  const [network = "", bits = ""] = cidr.split("/");
  const family = isIP(host);
  if (family === 0 || isIP(network) !== family || !/^\d{1,3}$/.test(bits) || Number(bits) > (family === 4 ? 32 : 128)) {
    return false;
  }
  const list = new BlockList();
  const type = family === 4 ? "ipv4" : "ipv6";
  list.addSubnet(network, Number(bits), type);
  return list.check(host, type);
}

/** The text of a URL, or of what was to be one, without a user name and password in it. */
export function withoutUserInfo(text: string): string {
  return text.replace(/^([a-z0-9+.-]*:\/\/)?[^]*@/i, "$1…@");
}

const SCHEMES = ["http:", "https:", "socks5:"];

/**
 * Reads the address of a proxy; one without a scheme is an HTTP proxy.
 * @throws {Error} where it is no URL of an HTTP, HTTPS or SOCKS5 proxy.
 */
export function parseProxy(text: string): URL {
  const url = URL.parse(/^[a-z0-9]+:\/\//i.test(text) ? text : `http://${text}`);
  if (url === null || !SCHEMES.includes(url.protocol) || url.hostname === "") {
    throw new Error(`proxy "${withoutUserInfo(text)}" is not the URL of an http, https or socks5 proxy`);
  }
  return url;
}
