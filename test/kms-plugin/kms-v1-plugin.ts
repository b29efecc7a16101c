import type { sendUnaryData, ServerUnaryCall } from "@grpc/grpc-js";
import { KeyRing } from "./key-ring.ts";
import { answerWith, PluginServer } from "./plugin-server.ts";

/**
 * A KMS v1 plugin, as an API server talks to it over a Unix socket: `KeyManagementService` of k8s.io/kms/apis/v1beta1. It tells no
 * API server which key it encrypts with; what it encrypted begins with the id of the key, for itself.
 */
export class KmsV1Plugin {
  readonly keys: KeyRing;
  #server: PluginServer | undefined;

  private constructor(keyId: string) {
    this.keys = new KeyRing(keyId);
  }

  /** @param socket the path of the Unix socket, at most 107 bytes */
  static async start(socket: string, keyId: string): Promise<KmsV1Plugin> {
    const plugin = new KmsV1Plugin(keyId);
    plugin.#server = await PluginServer.start(
      socket,
      { file: "kms-v1.proto", name: "v1beta1" },
      {
        Version: (_call: unknown, answer: sendUnaryData<object>) =>
          answer(null, { version: "v1beta1", runtimeName: "test", runtimeVersion: "1.0.0" }),
        Encrypt: ({ request }: ServerUnaryCall<{ plain: Buffer }, object>, answer: sendUnaryData<object>) => {
          const { ciphertext, id } = plugin.keys.encrypt(request.plain);
          answer(null, { cipher: Buffer.concat([Buffer.from(`${id}:`), ciphertext]) });
        },
        Decrypt: ({ request }: ServerUnaryCall<{ cipher: Buffer }, object>, answer: sendUnaryData<object>) => {
          const end = request.cipher.indexOf(":");
          const id = request.cipher.toString("latin1", 0, end);
          answerWith(answer, () => ({ plain: plugin.keys.decrypt(id, request.cipher.subarray(end + 1)) }));
        },
      },
    );
    return plugin;
  }

  /** Ends it at once, with all connections. */
  stop(): void {
    this.#server?.stop();
  }
}
