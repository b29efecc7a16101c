import { rmSync } from "node:fs";
import { join } from "node:path";
import {
  type handleUnaryCall,
  loadPackageDefinition,
  Server,
  ServerCredentials,
  type ServiceClientConstructor,
  status,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { KeyRing } from "./key-ring.ts";

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
  readonly #server = new Server();
  readonly #socket: string;
  /** As where the key management service knows the new key and does not let this plugin encrypt with it. */
  refusesToEncrypt = false;
  #statusCalls = 0;
  #decryptions = 0;

  private constructor(socket: string, keys: KeyRing) {
    [this.#socket, this.keys] = [socket, keys];
  }

  /** @param socket the path of the Unix socket, at most 107 bytes */
  static async start(socket: string, keyId: string): Promise<KmsPlugin> {
    const plugin = new KmsPlugin(socket, new KeyRing(keyId));
    const loaded = loadPackageDefinition(loadSync(join(import.meta.dirname, "kms-v2.proto")));
    const { KeyManagementService } = loaded["v2"] as unknown as { KeyManagementService: ServiceClientConstructor };
    const methods = { Status: plugin.#status, Encrypt: plugin.#encrypt, Decrypt: plugin.#decrypt };
    plugin.#server.addService(KeyManagementService.service, methods);
    await new Promise<void>((resolve, reject) => {
      plugin.#server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      );
    });
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
    this.#server.forceShutdown();
    rmSync(this.#socket, { force: true });
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
    try {
      answer(null, { plaintext: this.keys.decrypt(request.keyId, request.ciphertext) });
    } catch (error) {
      answer({ code: status.INVALID_ARGUMENT, details: (error as Error).message });
    }
  };
}
