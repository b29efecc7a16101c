import type { handleUnaryCall } from "@grpc/grpc-js";
import { KeyRing } from "./key-ring.ts";
import { answerWith, PluginServer } from "./plugin-server.ts";

interface EncryptRequest {
  readonly plaintext: Buffer;
}

interface DecryptRequest {
  readonly ciphertext: Buffer;
  readonly keyId: string;
}

/**
 * A KMS v2 plugin, as an API server talks to it over a Unix socket: `KeyManagementService` of k8s.io/kms/apis/v2. It encrypts the
 * seeds that the API server derives its data keys from; its keys rotate while it runs. It lives in this process.
 *
 * https://kubernetes.io/docs/tasks/administer-cluster/kms-provider/
 */
export class KmsPlugin {
  readonly keys: KeyRing;
  #server: PluginServer | undefined;
  /** As where the key management service knows the new key and does not let this plugin encrypt with it. */
  refusesToEncrypt = false;
  #statusCalls = 0;
  #decryptions = 0;

  private constructor(keys: KeyRing) {
    this.keys = keys;
  }

  /** @param socket the path of the Unix socket, at most 107 bytes */
  static async start(socket: string, keyId: string): Promise<KmsPlugin> {
    const plugin = new KmsPlugin(new KeyRing(keyId));
    const methods = { Status: plugin.#status, Encrypt: plugin.#encrypt, Decrypt: plugin.#decrypt };
    plugin.#server = await PluginServer.start(socket, { file: "kms-v2.proto", name: "v2" }, methods);
    return plugin;
  }

  /** How often an API server asked for the id of the key; it does so once a minute. */
  get statusCalls(): number {
    return this.#statusCalls;
  }

  /** How often an API server had a seed decrypted; it keeps what it was told. */
  get decryptions(): number {
    return this.#decryptions;
  }

  /** Ends it at once, with all connections. */
  stop(): void {
    this.#server?.stop();
  }

  readonly #status: handleUnaryCall<object, object> = (_call, answer) => {
    this.#statusCalls++;
    answer(null, { version: "v2", healthz: "ok", keyId: this.keys.current });
  };

  readonly #encrypt: handleUnaryCall<EncryptRequest, object> = ({ request }, answer) => {
    if (this.refusesToEncrypt) {
      answer({ code: 7, details: "PERMISSION_DENIED: kms:Encrypt" });
      return;
    }
    const { ciphertext, id } = this.keys.encrypt(request.plaintext);
    answer(null, { ciphertext, keyId: id });
  };

  readonly #decrypt: handleUnaryCall<DecryptRequest, object> = ({ request }, answer) => {
    this.#decryptions++;
    answerWith(answer, () => ({ plaintext: this.keys.decrypt(request.keyId, request.ciphertext) }));
  };
}
