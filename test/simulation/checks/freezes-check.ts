import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { holderOf, type Lease } from "../../../src/api/lease.ts";
import { MIGRATING_ANNOTATION } from "../../../src/api/names.ts";
import { freezerOf } from "../../../src/api/owner.ts";
import { CRD_PREFIX } from "../model/crd-registry.ts";
import type { EtcdEntry } from "../model/timeline.ts";
import type { SimEtcd } from "../model/etcd.ts";

/**
 * No program takes off a freeze that is not its own to take off: neither that of another client, nor that of a run that holds
 * its Lease.
 */
export class FreezesCheck {
  readonly #report: (violation: string) => void;
  readonly #writer: () => string | undefined;
  /** What was decided before a restore may land after it, where a revision is given a second time. */
  readonly #isExempt: (writer: string) => boolean;

  /**
   * @param writer who writes the revision that etcd tells of at this moment; a program of ksvm by its name, which its identity begins with
   * @param isExempt programs that are not judged
   */
  constructor(
    report: (violation: string) => void,
    writer: () => string | undefined,
    isExempt: (writer: string) => boolean = () => false,
  ) {
    this.#report = report;
    this.#writer = writer;
    this.#isExempt = isExempt;
  }

  follow(etcd: SimEtcd): void {
    etcd.onRevision((entry) => this.#written(etcd, entry));
  }

  #written(etcd: SimEtcd, entry: EtcdEntry): void {
    if (!entry.key.startsWith(CRD_PREFIX) || entry.isDeleted) return;
    const writer = this.#writer();
    const before = entry.before?.object as CustomResourceDefinition | undefined;
    if (before === undefined || writer?.startsWith("ksvm") !== true || this.#isExempt(writer)) return;
    const after = entry.object as unknown as CustomResourceDefinition;
    const freezer = freezerOf(before.metadata);
    if (freezer === undefined || freezeOf(before) === freezeOf(after)) return;
    const what = `${writer} changed the freeze of ${before.metadata.name} at revision ${entry.modRevision}`;
    if (freezer.kind === "other") {
      this.#report(`${what}, which another client had put on`);
      return;
    }
    const { identity, lease } = freezer.owner;
    if (identity.startsWith(`${writer}_`)) return;
    const held = etcd.get(`/registry/leases/${lease}`)?.object as Lease | undefined;
    if (holderOf(held) === identity) this.#report(`${what}, which is that of ${identity}, a run that holds its Lease`);
  }
}

/** The value of the annotation and whose it is, where it is ksvm's. */
function freezeOf({ metadata }: CustomResourceDefinition): string {
  const freezer = freezerOf(metadata);
  const owner = freezer?.kind === "run" ? freezer.owner.identity : freezer?.kind;
  return `${metadata.annotations?.[MIGRATING_ANNOTATION]} ${owner}`;
}
