import type { WebhookAnswer } from "../model/types.ts";
import type { SimWebhook } from "./sim-cluster.ts";

/** What a webhook of the simulation is asked about. */
export interface ReviewedRequest {
  readonly uid: string;
  readonly name: string;
  readonly operation: string;
  readonly userInfo: { readonly username: string };
  readonly object: {
    readonly metadata: { readonly annotations?: Readonly<Record<string, string>> };
    readonly spec?: Readonly<Record<string, unknown>>;
  } | null;
}

/** An admission webhook that answers with what `response` says, beside the uid. */
export function admissionWebhook(response: (request: ReviewedRequest) => object): SimWebhook {
  return async (body) => {
    const { request } = JSON.parse(body) as { request: ReviewedRequest };
    return reviewed(
      { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview" },
      { uid: request.uid, ...response(request) },
    );
  };
}

/** Allows, and changes the object by a JSON patch. */
export function mutation(patch: readonly object[]): object {
  return { allowed: true, patchType: "JSONPatch", patch: Buffer.from(JSON.stringify(patch)).toString("base64") };
}

interface ConversionRequest {
  readonly uid: string;
  readonly desiredAPIVersion: string;
  readonly objects: readonly ConvertedObject[];
}

/** An object as a conversion webhook sees it. */
export interface ConvertedObject {
  readonly apiVersion: string;
  readonly metadata: { readonly name: string };
  readonly spec?: Readonly<Record<string, unknown>>;
}

/** A conversion webhook; `convert` makes of each object what it likes, and throws where it refuses. */
export function conversionWebhook(convert: (object: ConvertedObject, apiVersion: string) => object): SimWebhook {
  return async (body) => {
    const { request } = JSON.parse(body) as { request: ConversionRequest };
    const of = { apiVersion: "apiextensions.k8s.io/v1", kind: "ConversionReview" };
    const { desiredAPIVersion, objects, uid } = request;
    try {
      const convertedObjects = objects.map((object) => convert(object, desiredAPIVersion));
      return reviewed(of, { uid, result: { status: "Success" }, convertedObjects });
    } catch (error) {
      return reviewed(of, { uid, result: { status: "Failure", message: (error as Error).message } });
    }
  };
}

function reviewed(of: object, response: object): WebhookAnswer {
  return { status: 200, body: JSON.stringify({ ...of, response }) };
}

/** Never answers. */
export function hang(): Promise<WebhookAnswer> {
  return new Promise(() => undefined);
}
