import type { ControlPlane } from "./control-plane.ts";

/**
 * How many requests to read or watch objects of a resource an API server has counted since it was started, whoever sent
 * them: the API server itself reads some resources, a handful of times.
 */
export async function readsOf(controlPlane: ControlPlane, resource: string, apiserver = 0): Promise<number> {
  const { status, body } = await controlPlane.request("/metrics", { apiserver });
  if (status !== 200) throw new Error(`Cannot read /metrics: the API server answered ${status}`);
  return String(body)
    .split("\n")
    .filter((line) => line.startsWith("apiserver_request_total{"))
    .filter((line) => line.includes(`resource="${resource}"`) && /verb="(GET|LIST|WATCH)"/.test(line))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}
