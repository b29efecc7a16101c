import { writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { text as readText } from "node:stream/consumers";
import type { Test } from "tap";
import { Agent, request } from "undici";
import { issueSelfSigned } from "../certs/self-signed.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";

/**
 * Whether the answer to a request is lost on its way: the API server carried it out, and whoever sent it does not know.
 * @param request `METHOD path?query body`
 */
export type Loses = (request: string) => boolean;

/**
 * Starts an HTTP proxy in front of the first API server, which ends TLS. It ends with the test.
 * @returns the path of a kubeconfig that leads to it, and by which the API servers can be asked directly, too
 */
export async function loseAnswers(t: Test, controlPlane: ControlPlane, loses: Loses): Promise<string> {
  const pair = await issueSelfSigned({
    dnsNames: ["localhost"],
    ipAddresses: ["127.0.0.1"],
    now: new Date(),
    lifetimeMs: 3_600_000,
  });
  const dispatcher = new Agent({ connect: { ca: controlPlane.ca } });
  const server = createServer({ cert: pair.certPem, key: pair.keyPem }, (incoming, response) => {
    const { headers, method = "GET", url = "" } = incoming;
    const target = controlPlane.apiservers[0]?.url ?? "";
    const { host: _, connection: __, ...passed } = headers;
    const passOn = async (): Promise<void> => {
      const body = await readText(incoming);
      const options = { method: method as "GET", headers: passed, body: body === "" ? null : body, dispatcher };
      const answer = await request(`${target}${url}`, options);
      if (loses(`${method} ${url} ${body}`)) {
        await answer.body.dump();
        return;
      }
      const { connection: ___, "transfer-encoding": ____, ...answered } = answer.headers;
      response.writeHead(answer.statusCode, answered as Record<string, string>);
      response.flushHeaders();
      answer.body.on("error", () => response.destroy()).pipe(response);
    };
    passOn().catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(async () => {
    server.closeAllConnections();
    server.close();
    await dispatcher.destroy();
  });
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const text = controlPlane
    .kubeconfigTextFor()
    .replace(controlPlane.apiservers[0]?.url ?? "", url)
    .replace(base64(controlPlane.ca), base64(pair.caPem + controlPlane.ca));
  const kubeconfig = join(t.testdir(), "http-kubeconfig");
  writeFileSync(kubeconfig, text);
  return kubeconfig;
}

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}
