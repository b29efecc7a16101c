import { caBundleOf } from "./ca-bundle.ts";
import { isTurnedDown } from "./rotation-plan.ts";
import { contentsOf, factsOf, type SecretObject } from "./secret-contents.ts";

/** Whether what keeps the certificates has to look at the Secret before its next look is due. */
export class SecretLosses {
  /** The last resourceVersion that was told of as holding a pair that API servers refuse. */
  #told: string | undefined = "";
  readonly #serverName: string;

  /** @param serverName the DNS name or IP address by which API servers call */
  constructor(serverName: string) {
    this.#serverName = serverName;
  }

  /**
   * Whether a Secret, as it was read, has lost its certificates: again and again where it is gone or holds no CA, and
   * once for each change of a Secret that holds no pair, one that its own CAs did not sign, one that is not valid, or
   * one for other names or another namespace.
   *
   * @param secret `undefined` where there is none
   * @param now milliseconds since the Unix epoch, by the API server's clock
   */
  isLost(secret: SecretObject | undefined, now: number): boolean {
    if (secret === undefined || caBundleOf(secret) === undefined) {
      return true;
    }
    const { resourceVersion } = secret.metadata;
    if (resourceVersion === this.#told || !isUseless(secret, this.#serverName, now)) {
      return false;
    }
    this.#told = resourceVersion;
    return true;
  }
}

function isUseless(secret: SecretObject, serverName: string, now: number): boolean {
  try {
    return isTurnedDown(factsOf(contentsOf(secret), [serverName], secret.metadata.namespace), now);
  } catch {
    // Another program keeps it: there is nothing that ksvm could repair, and what keeps the certificates says so.
    return false;
  }
}
