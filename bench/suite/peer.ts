import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parse } from "yaml";
import { CRDS, type NewObject, type Resource } from "../../test/api-client.ts";
import { GROUP } from "../../test/integration/crd-fixture.ts";
import { eventually } from "../../test/integration/cluster.ts";
import { RunningProgram } from "../../test/processes/program.ts";
import { endWithThisProcess } from "../../test/processes/watchdog.ts";
import { cpuSecondsOf, peakMegabytesOf } from "../process-usage.ts";
import type { Ring, Took } from "./ring.ts";

/** Names the folder with the sources of kube-storage-version-migrator, with the folder vendor. */
export const PEER_SOURCE = "KSVM_PEER_SOURCE";

const MIGRATIONS: Resource = { group: "migration.k8s.io", version: "v1alpha1", resource: "storageversionmigrations" };
const POLL_MS = 250;

interface Status {
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}

/** Builds it with the vendored packages. @returns the path of the program */
export async function buildPeer(source: string, folder: string): Promise<string> {
  const output = join(folder, "kube-storage-version-migrator");
  const go = new RunningProgram("go", ["build", "-mod=vendor", "-o", output, "./cmd/migrator"], { cwd: source });
  const { code, stderr } = await go.ended;
  if (code !== 0) throw new Error(`Cannot build kube-storage-version-migrator:\n${stderr.trimEnd()}`);
  return output;
}

/** Runs its migrator for this measurement; its start is no part of it. It rewrites, and does not prune. */
export async function migrateByPeer(
  { cluster, stale, route, signal }: Ring,
  source: string,
  limits: readonly string[],
): Promise<Took> {
  const { api, controlPlane } = cluster;
  const program = await buildPeer(source, controlPlane.dir);
  const crd = parse(readFileSync(join(source, "manifests/storage_migration_crd.yaml"), "utf8")) as NewObject;
  if ((await api.find(CRDS, { name: "storageversionmigrations.migration.k8s.io" })) === undefined)
    await api.create(CRDS, crd);
  await eventually(
    () =>
      api.listMetadata(MIGRATIONS, { limit: 1 }).then(
        () => true,
        () => false,
      ),
    "its API is served",
  );
  const child = spawn(program, ["--kubeconfig", route.kubeconfig, ...limits], { detached: true, stdio: "ignore" });
  endWithThisProcess(child);
  try {
    const { plural } = stale.kind;
    const create = (name: string): Promise<unknown> =>
      api.create(MIGRATIONS, {
        apiVersion: "migration.k8s.io/v1alpha1",
        kind: "StorageVersionMigration",
        metadata: { name },
        spec: { resource: { group: GROUP, version: "v1", resource: plural } },
      });
    // Its informers have to be there before what is measured begins; a first migration, of nothing, shows that.
    const name = `${plural}-${Math.round(performance.now())}`;
    const before = cpuSecondsOf(child.pid);
    const startedAt = performance.now();
    await create(name);
    for (;;) {
      const { status } = await api.get<Status>(MIGRATIONS, { name });
      const is = (type: string): boolean =>
        (status?.conditions ?? []).some((one) => one.type === type && one.status === "True");
      if (is("Failed")) throw new Error("Cannot count this run: it failed");
      if (is("Succeeded")) break;
      await sleep(POLL_MS, undefined, { signal });
    }
    const seconds = (performance.now() - startedAt) / 1_000;
    return {
      seconds,
      own: { cpuSeconds: cpuSecondsOf(child.pid) - before, peakMegabytes: peakMegabytesOf(child.pid) },
    };
  } finally {
    child.kill("SIGKILL");
  }
}
