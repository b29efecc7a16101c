import { withoutUserInfo } from "./proxy.ts";

/**
 * The URL of an API server as a kubeconfig names it. As client-go does, it takes URLs, with a path or without, and for
 * `host` and `host:port` plain http: `localhost:8001` is what `kubectl proxy` listens on.
 * @returns without a slash at its end
 * @throws {Error} for anything else.
 */
export function serverUrlOf(server: string): string {
  const isUrl = /^[a-z][a-z0-9+.-]*:\/\//i.test(server);
  const url = URL.parse(isUrl ? server : `http://${server}`);
  const isUsable = url !== null && ["http:", "https:"].includes(url.protocol) && url.hostname !== "";
  if (!isUsable || (!isUrl && url.pathname !== "/") || url.search !== "" || url.hash !== "") {
    throw new Error(`server "${withoutUserInfo(server)}" is not an http or https URL, nor a host with a port`);
  }
  return `${url.origin}${url.pathname}`.replace(/\/+$/, "");
}
