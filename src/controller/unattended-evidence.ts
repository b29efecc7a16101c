import { EncryptionEvidence } from "../old/apiservers/encryption-evidence.ts";
import { RecentFailure } from "../old/apiservers/recent-failure.ts";
import type { ReencryptionWish } from "../api/reencryption.ts";

/** Users name the configurations: of those that no migration means any more nothing has to be kept. */
const MAX_CONFIGS = 16;

/**
 * How the migrations of a controller see how API servers encrypt. Each waits for late writes by itself: between two runs it is not
 * watched whether an API server came and went. Those that mean the same configuration share what makes them wait.
 */
export class UnattendedEvidence {
  readonly #recent = new Map<string, RecentFailure>();

  /** For one run of a migration that means this configuration. */
  for({ expectedConfig }: ReencryptionWish): EncryptionEvidence {
    const key = expectedConfig ?? "any";
    const recent = this.#recent.get(key) ?? new RecentFailure();
    this.#recent.delete(key);
    this.#recent.set(key, recent);
    for (const oldest of [...this.#recent.keys()].slice(0, -MAX_CONFIGS)) {
      this.#recent.delete(oldest);
    }
    return new EncryptionEvidence({ isAssumed: false, isUnattended: true, expectedConfig, recent });
  }
}
