import https from "node:https";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";
import { issueSelfSigned } from "../certs/self-signed.ts";

interface ConversionReview {
  readonly request: {
    readonly uid: string;
    readonly desiredAPIVersion: string;
    readonly objects: readonly { readonly apiVersion: string; readonly metadata: { readonly name: string } }[];
  };
}

/** A webhook that API servers call. */
export interface ServedWebhook {
  readonly clientConfig: { readonly url: string; readonly caBundle: string };
  /** How often it was called. */
  calls(): number;
  /** While it is down it breaks every connection off. */
  setDown(isDown: boolean): void;
  /** While it hangs it takes connections and requests, and answers none. */
  setHung(isHung: boolean): void;
}

/** A local HTTPS server that API servers call; `answer` gets the parsed body. It ends with the test. */
export async function serveWebhook(
  t: Test,
  answer: (review: never) => object | Promise<object>,
): Promise<ServedWebhook> {
  let calls = 0;
  let down = false;
  let hung = false;
  const pair = await issueSelfSigned({
    dnsNames: ["localhost"],
    ipAddresses: ["127.0.0.1"],
    now: new Date(),
    lifetimeMs: 3_600_000,
  });
  // An API server uses an idle connection again for 90 s. Node.js would reset it after 5 s, perhaps as it is used.
  const options = { cert: pair.certPem, key: pair.keyPem, keepAliveTimeout: 120_000 };
  const server = https.createServer(options, (request, response) => {
    if (down) {
      request.socket.destroy();
      return;
    }
    if (hung) {
      return;
    }
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      calls++;
      void Promise.resolve(answer(JSON.parse(Buffer.concat(chunks).toString()) as never)).then((body) =>
        response.setHeader("content-type", "application/json").end(JSON.stringify(body)),
      );
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const caBundle = Buffer.from(pair.caPem).toString("base64");
  return {
    clientConfig: { url: `https://127.0.0.1:${port}/`, caBundle },
    calls: () => calls,
    setDown: (isDown) => {
      down = isDown;
    },
    setHung: (isHung) => {
      hung = isHung;
    },
  };
}

/**
 * A conversion webhook that only changes the apiVersion, as strategy None does, but by a call. It fails for objects that
 * `isRefused` picks by their names.
 */
export function serveConversion(t: Test, isRefused: (name: string) => boolean = () => false): Promise<ServedWebhook> {
  return serveWebhook(t, ({ request }: ConversionReview) => {
    const refused = request.objects.find(({ metadata }) => isRefused(metadata.name));
    const result =
      refused === undefined
        ? { status: "Success" }
        : { status: "Failure", message: `${refused.metadata.name} cannot be converted` };
    const convertedObjects = request.objects.map((object) => ({ ...object, apiVersion: request.desiredAPIVersion }));
    return {
      apiVersion: "apiextensions.k8s.io/v1",
      kind: "ConversionReview",
      response: { uid: request.uid, result, ...(refused === undefined ? { convertedObjects } : {}) },
    };
  });
}

/** The `spec.conversion` of a CRD that calls a webhook. */
export function conversionBy({ clientConfig }: ServedWebhook): object {
  return { strategy: "Webhook", webhook: { conversionReviewVersions: ["v1"], clientConfig } };
}
