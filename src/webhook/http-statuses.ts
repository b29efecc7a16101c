/** Where the API server sends its reviews. */
export const VALIDATE_PATH = "/validate";

/** The methods of every path. */
export const METHODS: Readonly<Record<string, string>> = {
  [VALIDATE_PATH]: "POST",
  "/healthz": "GET, HEAD",
  "/readyz": "GET, HEAD",
};

/**
 * The HTTP status of every answer other than a verdict, and the text that goes with it; docs/webhook.md has the same
 * table. A verdict is always a 200, with the 403 of a denial inside. A 400 for a body that is JSON but no review says
 * instead which field is wrong. No answer carries an error's own message, which may show internals.
 */
export const STATUS_TEXTS: Readonly<Record<number, string>> = {
  400: "Cannot read the AdmissionReview: the body is empty or broken JSON",
  404: "Nothing is served at this path",
  405: "This path does not take this method",
  408: "Cannot read the AdmissionReview: its body did not come in time",
  413: "Cannot read the AdmissionReview: it is larger than this webhook reads",
  415: "The content type must be application/json",
  500: "The webhook failed to review the update; its log says why",
  503: "Cannot read the AdmissionReview: the memory for bodies is used up",
};

/** Why an update is denied whose review holds more than the webhook builds. */
export const OVER_BUDGET_MESSAGE =
  "Cannot review this update of a CustomResourceDefinition: it has more versions and conditions than this webhook reads";

/**
 * Why an update is denied whose review is over the limit. Of such a review the uid is known, so that the answer is one
 * that the API server hands to the user.
 */
export function tooLargeMessage(length: number, limit: number): string {
  return (
    `Cannot review this update of a CustomResourceDefinition: its AdmissionReview has ${length} bytes, and the webhook ` +
    `reads ${limit}; it asks for another storage version while objects are being migrated, which is to wait until the ` +
    'migration ends ("ksvm status" shows it) or is stopped ("ksvm unfreeze NAME", with the name of the ' +
    "CustomResourceDefinition)"
  );
}
