import type { Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { LEASES, MERGE_PATCH } from "../api-client.ts";
import { leaseName } from "../../src/migrator/run-lease.ts";
import { assertNoTraces } from "../integration/assert-no-traces.ts";
import type { Cluster } from "../integration/cluster.ts";
import { GROUP, TestKind } from "../integration/crd-fixture.ts";
import { errorCodeOf, type KsvmEnd, KsvmProcess } from "./ksvm-process.ts";
import { Load, type LoadOptions } from "./load.ts";
import { type CheckerOptions, SoundnessChecker, type SoundnessReport } from "./soundness-checker.ts";
import { describeBreach } from "./stored-state.ts";

/** What a scenario begins with. */
export interface ScenarioOptions extends CheckerOptions {
  readonly seed: number;
  /** Objects that are stored as v1alpha1 at the start. */
  readonly objects: number;
  /** How other clients write during the run; `false` for not at all. @default as the Load does by itself */
  readonly load?: false | Omit<LoadOptions, "seed" | "existing">;
  /** Flags of every `ksvm migrate`. @default a settle time of a second */
  readonly flags?: readonly string[];
  /** What every `ksvm migrate` talks to. @default the first API server */
  readonly kubeconfig?: string;
  /** Done while v1alpha1 is still the storage version. @default nothing */
  readonly beforeStorageChange?: (kind: TestKind) => Promise<void>;
}

const FLAGS = ["--unsafe-settle", "50ms"];

/**
 * A stale CRD with objects, others who write them, and a checker of S1: what every scenario does harm to.
 */
export class Scenario {
  readonly cluster: Cluster;
  readonly kind: TestKind;
  readonly checker: SoundnessChecker;
  readonly load: Load | undefined;
  readonly #t: Test;
  readonly #flags: readonly string[];
  readonly #kubeconfig: string;

  private constructor(
    t: Test,
    cluster: Cluster,
    parts: Pick<Scenario, "kind" | "checker" | "load"> & { flags: readonly string[]; kubeconfig: string },
  ) {
    this.#t = t;
    this.cluster = cluster;
    this.kind = parts.kind;
    this.checker = parts.checker;
    this.load = parts.load;
    this.#flags = parts.flags;
    this.#kubeconfig = parts.kubeconfig;
  }

  static async start(t: Test, cluster: Cluster, word: string, options: ScenarioOptions): Promise<Scenario> {
    const { seed, objects, load: loadOptions = {}, flags = FLAGS, kubeconfig = cluster.kubeconfig } = options;
    const kind = new TestKind(word);
    const shape = { statusSubresource: true };
    await cluster.createCrd(kind, { ...shape, storage: "v1alpha1" });
    const initial = kind.objects(objects, "v1alpha1");
    await cluster.createObjects(kind.resource("v1alpha1"), initial);
    const checker = await SoundnessChecker.start(t, () => cluster.controlPlane.stored, kind, options);
    const existing = initial.map(({ metadata }) => metadata.name ?? "");
    const load =
      loadOptions === false ? undefined : Load.start(t, cluster.controlPlane, kind, { ...loadOptions, seed, existing });
    await options.beforeStorageChange?.(kind);
    await cluster.setVersions(kind, { ...shape, storage: "v1" });
    return new Scenario(t, cluster, { kind, checker, load, flags, kubeconfig });
  }

  /** Starts `ksvm migrate` on the CRD. */
  startKsvm(flags: readonly string[] = [], kubeconfig = this.#kubeconfig): KsvmProcess {
    return new KsvmProcess(this.#t, kubeconfig, [...this.#flags, ...flags, this.kind.name]);
  }

  /** Changes the storage version, whatever is stored. */
  setStorage(storage: "v1alpha1" | "v1"): Promise<unknown> {
    return this.cluster.setVersions(this.kind, { statusSubresource: true, storage });
  }

  /** Whether storedVersions lists v1 alone. */
  async isPruned(): Promise<boolean> {
    return storedVersionsOf(await this.cluster.crd(this.kind)).join() === "v1";
  }

  /** Where a dead run left its checkpoint. */
  get leaseRef(): { readonly namespace: string; readonly name: string } {
    return { namespace: "kube-system", name: leaseName(this.kind.name) };
  }

  /** Makes a dead run's Lease a short one, for versions that have no time to wait until it expires. */
  async hurryLease(): Promise<void> {
    const patch = { type: MERGE_PATCH, body: { spec: { leaseDurationSeconds: 1 } } };
    await this.cluster.api.patch(LEASES, this.leaseRef, patch).catch(() => undefined);
  }

  /** A run ends with what it was sent for, or with one of these reasons. */
  assertTrueEnd(t: Test, end: KsvmEnd, reasons: readonly string[]): void {
    const reason = errorCodeOf(end);
    const isTrue = end.code === 0 || (end.code === 1 && reason !== undefined && reasons.includes(reason));
    t.ok(isTrue, `it ended with ${end.code}${reason === undefined ? "" : ` (${reason})`}`, { stderr: end.stderr });
  }

  /**
   * What must hold after any harm: running ksvm again succeeds, every object is stored in the new version, storedVersions
   * says so, nothing is left behind, no write of others is lost, and S1 held all the time.
   * @param flags of that last run, on top of the others
   */
  async assertSoundEnd(t: Test, flags: readonly string[] = []): Promise<SoundnessReport> {
    const again = await this.startKsvm(flags).ended;
    t.equal(again.code, 0, "running ksvm again succeeds", { stderr: again.stderr });
    const counts = await this.load?.stop();
    const stored = await this.cluster.controlPlane.stored.storedObjects(GROUP, this.kind.plural);
    t.same(
      [...new Set(stored.map(({ apiVersion }) => apiVersion))],
      [`${GROUP}/v1`],
      "every object is in the new version",
    );
    t.same(storedVersionsOf(await this.cluster.crd(this.kind)), ["v1"], "storedVersions is pruned");
    await assertNoTraces(t, this.cluster, this.kind);
    t.same(this.load?.lossesIn(stored) ?? [], [], "no write of others is lost");
    const report = await this.checker.stop();
    assertSound(t, report);
    const { revisions, snapshots, gaps } = report;
    const done = counts === undefined ? "" : `; others: ${JSON.stringify(counts)}`;
    console.error(`  ${t.name}: ${revisions} revisions and ${snapshots} snapshots checked, ${gaps} gaps${done}`);
    return report;
  }
}

/** S1 held wherever the checker looked, and it did look. */
export function assertSound(t: Test, report: SoundnessReport): void {
  t.same(report.breachesInHistory.map(describeBreach), [], "S1 holds at every revision of etcd's history");
  t.same(report.breachesInSnapshots.map(describeBreach), [], "S1 holds in every snapshot of etcd");
  t.ok(report.revisions > 0 && report.snapshots > 0, "the checker looked");
}
