import { createPrivateKey, X509Certificate } from "node:crypto";
import { watch } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { type Clock, systemClock } from "../clock.ts";
import type { CertificateSource, ServingPair, SourceOptions } from "../webhook/serving-certificate.ts";
import type { ServerClock } from "./server-clock.ts";

/** Options of {@link FileSource}. */
export interface FileSourceOptions extends SourceOptions {
  /** The certificate, with its chain behind it. */
  readonly certFile: string;
  readonly keyFile: string;
  /** Measured beside each look. @default none */
  readonly serverClock?: Pick<ServerClock, "refresh">;
  /** @default the clock of this machine */
  readonly clock?: Clock;
  /** Milliseconds between two looks beside the file events. @default 10000 */
  readonly pollMs?: number;
}

/** How long a pair may be half changed, in milliseconds: then it is taken for what it is. */
const HALF_CHANGED_MS = 1_000;
const HALF_CHANGED_TRIES = 4;

/**
 * A pair of files, such as a mounted Secret. Event and poll together: file events do not come from every file system,
 * and the kubelet swaps a symlink beside the files (`..data`), which watches of the files themselves do not see.
 */
export class FileSource implements CertificateSource {
  readonly #options: FileSourceOptions;
  readonly #clock: Clock;
  #wasThere: boolean | undefined;
  #isMeasuring = false;

  constructor(options: FileSourceOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  async run(signal: AbortSignal): Promise<void> {
    const folders = new Set([dirname(this.#options.certFile), dirname(this.#options.keyFile)]);
    while (!signal.aborted) {
      const change = new AbortController();
      const stops = [...folders].map((folder) => watchFolder(folder, () => change.abort()));
      void this.#measure(signal);
      // Watched first, then read: what changes in between is seen by the next look.
      await this.#look(signal);
      await this.#pause(AbortSignal.any([signal, change.signal]));
      for (const stop of stops) {
        stop();
      }
    }
  }

  /** Beside the look: files are read and offered also while no API server answers. The next look knows its clock. */
  async #measure(signal: AbortSignal): Promise<void> {
    if (!this.#isMeasuring) {
      this.#isMeasuring = true;
      await this.#options.serverClock?.refresh(signal).catch(() => undefined);
      this.#isMeasuring = false;
    }
  }

  async #pause(signal: AbortSignal): Promise<void> {
    await this.#clock.sleep(this.#options.pollMs ?? 10_000, signal).catch(() => undefined);
  }

  /** Key and certificate are two files: read in between two writes they do not belong together, for a moment. */
  async #look(signal: AbortSignal): Promise<void> {
    for (let tries = 1; !signal.aborted; tries++) {
      const pair = await this.#read();
      if (pair === undefined) {
        return;
      }
      if (isPair(pair) || tries === HALF_CHANGED_TRIES) {
        this.#options.certificate.offer(pair);
        return;
      }
      await this.#clock.sleep(HALF_CHANGED_MS / HALF_CHANGED_TRIES, signal).catch(() => undefined);
    }
  }

  async #read(): Promise<ServingPair | undefined> {
    const { certFile, keyFile, logger } = this.#options;
    try {
      const [certPem, keyPem] = await Promise.all([readFile(certFile, "utf8"), readFile(keyFile, "utf8")]);
      this.#wasThere = true;
      return { certPem, keyPem };
    } catch (error) {
      if (this.#wasThere !== false) {
        logger.warn({ err: error }, "Cannot read the serving certificate; it is taken into use once it can be read");
      }
      this.#wasThere = false;
      return undefined;
    }
  }
}

/** Whether the key belongs to the certificate, and both can be read. */
function isPair({ certPem, keyPem }: ServingPair): boolean {
  try {
    return new X509Certificate(certPem).checkPrivateKey(createPrivateKey(keyPem));
  } catch {
    // A file that is being written may be cut off.
    return false;
  }
}

function watchFolder(folder: string, onChange: () => void): () => void {
  try {
    const watcher = watch(folder, { persistent: false }, onChange);
    watcher.on("error", onChange);
    return () => watcher.close();
  } catch {
    // A folder that is not there yet: the poll finds it.
    return () => undefined;
  }
}
