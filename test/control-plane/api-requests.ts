import type { ControlPlane } from "./control-plane.ts";

/**
 * How many requests to read or watch objects of a resource an API server has counted since it was started, whichever client sent
 * them: the API server itself reads some resources, a handful of times.
 */
export function readsOf(controlPlane: ControlPlane, resource: string, apiserver = 0): Promise<number> {
  return countRequests(controlPlane, resource, { apiserver, isCounted: isRead });
}

function isRead(line: string): boolean {
  return /verb="(GET|LIST|WATCH)"/.test(line);
}

/** How many patches of objects of a resource, applies too, an API server has answered with a status since it was started. */
export function patchesAnswered(controlPlane: ControlPlane, resource: string, code: number): Promise<number> {
  const isCounted = (line: string): boolean => /verb="(APPLY|PATCH)"/.test(line) && line.includes(`code="${code}"`);
  return countRequests(controlPlane, resource, { apiserver: 0, isCounted });
}

/** How many lists of objects of a resource an API server has answered with a status since it was started. */
export function listsAnswered(controlPlane: ControlPlane, resource: string, code: number): Promise<number> {
  const isCounted = (line: string): boolean => line.includes('verb="LIST"') && line.includes(`code="${code}"`);
  return countRequests(controlPlane, resource, { apiserver: 0, isCounted });
}

async function countRequests(
  controlPlane: ControlPlane,
  resource: string,
  { apiserver, isCounted }: { readonly apiserver: number; readonly isCounted: (line: string) => boolean },
): Promise<number> {
  const { status, body } = await controlPlane.request("/metrics", { apiserver });
  if (status !== 200) throw new Error(`Cannot read /metrics: the API server answered ${status}`);
  return String(body)
    .split("\n")
    .filter((line) => line.startsWith("apiserver_request_total{"))
    .filter((line) => line.includes(`resource="${resource}"`) && isCounted(line))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}
