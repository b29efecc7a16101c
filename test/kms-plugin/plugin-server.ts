import { rmSync } from "node:fs";
import { join } from "node:path";
import {
  loadPackageDefinition,
  type sendUnaryData,
  Server,
  ServerCredentials,
  type ServiceClientConstructor,
  status,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

/** A gRPC server of a KMS plugin on a Unix socket. It lives in this process. */
export class PluginServer {
  readonly #server = new Server();
  readonly #socket: string;

  private constructor(socket: string) {
    this.#socket = socket;
  }

  /**
   * Serves `KeyManagementService` of a version of the API.
   * @param socket the path of the Unix socket, at most 107 bytes
   * @param version `file` is next to this one, `name` is its package
   */
  static async start(
    socket: string,
    version: { readonly file: string; readonly name: string },
    methods: UntypedServiceImplementation,
  ): Promise<PluginServer> {
    const started = new PluginServer(socket);
    const loaded = loadPackageDefinition(loadSync(join(import.meta.dirname, version.file)));
    const { KeyManagementService } = loaded[version.name] as unknown as {
      KeyManagementService: ServiceClientConstructor;
    };
    started.#server.addService(KeyManagementService.service, methods);
    await new Promise<void>((resolve, reject) => {
      started.#server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      );
    });
    return started;
  }

  /** Ends it at once, with all connections. */
  stop(): void {
    this.#server.forceShutdown();
    rmSync(this.#socket, { force: true });
  }
}

/** Answers a call with what is decided, or with why it cannot be. */
export function answerWith(answer: sendUnaryData<object>, decide: () => object): void {
  try {
    answer(null, decide());
  } catch (error) {
    answer({ code: status.INVALID_ARGUMENT, details: (error as Error).message });
  }
}
