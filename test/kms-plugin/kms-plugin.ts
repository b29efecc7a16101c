import { rmSync } from "node:fs";
import { join } from "node:path";
import {
  type handleUnaryCall,
  loadPackageDefinition,
  type sendUnaryData,
  Server,
  ServerCredentials,
  type ServiceClientConstructor,
  status,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { KeyRing } from "./key-ring.ts";

const PROTO = join(import.meta.dirname, "kms-v2.proto");

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
  readonly #server: Server;
  readonly #socket: string;
  #statusCalls = 0;
  #decryptions = 0;

  private constructor(socket: string, keys: KeyRing) {
    this.#socket = socket;
    this.keys = keys;
    this.#server = new Server();
    this.#server.addService(serviceOf(), {
      Status: this.#status,
      Encrypt: this.#encrypt,
      Decrypt: this.#decrypt,
    });
  }

  /** @param socket the path of the Unix socket, at most 107 bytes */
  static async start(socket: string, keyId: string): Promise<KmsPlugin> {
    const plugin = new KmsPlugin(socket, new KeyRing(keyId));
    await plugin.#listen();
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

  #listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.bindAsync(`unix:${this.#socket}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      );
    });
  }

  readonly #status: handleUnaryCall<object, object> = (_call, answer) => {
    this.#statusCalls++;
    answer(null, { version: "v2", healthz: "ok", keyId: this.keys.current });
  };

  readonly #encrypt: handleUnaryCall<EncryptRequest, object> = ({ request }, answer) => {
    const { ciphertext, id } = this.keys.encrypt(request.plaintext);
    answer(null, { ciphertext, keyId: id });
  };

  readonly #decrypt: handleUnaryCall<DecryptRequest, object> = ({ request }, answer) => {
    this.#decryptions++;
    answerWith(answer, () => ({ plaintext: this.keys.decrypt(request.keyId, request.ciphertext) }));
  };
}

function answerWith(answer: sendUnaryData<object>, decide: () => object): void {
  try {
    answer(null, decide());
  } catch (error) {
    answer({ code: status.INVALID_ARGUMENT, details: (error as Error).message });
  }
}

function serviceOf(): ServiceClientConstructor["service"] {
  const loaded = loadPackageDefinition(loadSync(PROTO));
  const { KeyManagementService } = loaded["v2"] as unknown as { KeyManagementService: ServiceClientConstructor };
  return KeyManagementService.service;
}
