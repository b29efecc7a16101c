import { isDeepStrictEqual } from "node:util";

import { storedVersionsOf } from "../crd.ts";
import { call, messageOf, readCrd, requestUntil } from "./api.ts";
import { apiVersion, crdPath, GROUP, NEW, newCrd, objectsPath, OLD, storageChange, withoutOldVersion } from "./crds.ts";
import { runKsvm } from "./ksvm.ts";
import { check, formatCount, quote, say, step } from "./narrate.ts";
import { OBJECTS, type Stage, WIDGETS } from "./stage.ts";
import { createObjects } from "./writer.ts";

export async function installCrd({ controlPlane, signal }: Stage): Promise<void> {
  step(`Install the CRD ${WIDGETS} with ${OLD} (storage) and ${NEW}`);
  const { path, body } = newCrd("Widget");
  await call(controlPlane, path, { method: "POST", body });
  for (const version of [OLD, NEW]) {
    await requestUntil(() => controlPlane.request(objectsPath("widgets", version)), isOk, signal);
  }
  const crd = await readCrd(controlPlane, "widgets");
  check(`storedVersions is [${OLD}]`, isDeepStrictEqual(storedVersionsOf(crd), [OLD]), crd.status);
}

export async function createWidgets({ controlPlane, signal }: Stage): Promise<void> {
  step(`Create ${formatCount(OBJECTS)} objects`);
  const startedAt = performance.now();
  await createObjects(controlPlane, { plural: "widgets", kind: "Widget", count: OBJECTS }, signal);
  const seconds = (performance.now() - startedAt) / 1_000;
  say(`It took ${seconds.toFixed(1)} s, ${Math.round(OBJECTS / seconds)} a second.`);
}

export async function changeStorageVersion({ controlPlane }: Stage): Promise<void> {
  step(`Make ${NEW} the storage version`);
  const before = await readCrd(controlPlane, "widgets");
  const path = crdPath("widgets");
  await call(controlPlane, path, { method: "PATCH", body: storageChange(before, NEW) });
  const crd = await readCrd(controlPlane, "widgets");
  check(`storedVersions is [${OLD},${NEW}]`, isDeepStrictEqual(storedVersionsOf(crd), [OLD, NEW]), crd.status);
  const counts = await controlPlane.stored.countByVersion(GROUP, "widgets");
  check(
    `in etcd all ${formatCount(OBJECTS)} objects are still stored as ${OLD}: nothing rewrites them by itself`,
    isDeepStrictEqual(counts, { [apiVersion(OLD)]: OBJECTS }),
    counts,
  );
  const { status } = await controlPlane.request(`${path}?dryRun=All`, {
    method: "PATCH",
    body: storageChange(crd, OLD),
  });
  check("anybody could change the storage version back now (a dry-run is accepted)", status === 200, status);
}

export async function showRefusal({ controlPlane }: Stage): Promise<void> {
  step(`Try to drop ${OLD} from the CRD without a migration`);
  const crd = await readCrd(controlPlane, "widgets");
  const answer = await controlPlane.request(crdPath("widgets"), { method: "PATCH", body: withoutOldVersion(crd) });
  check("the API server refuses", answer.status === 422, answer);
  quote(messageOf(answer));
}

export async function showPlan({ controlPlane, signal }: Stage): Promise<void> {
  step(`Ask what a migration would do: ksvm plan ${WIDGETS}`);
  const kubeconfig = controlPlane.kubeconfigFor();
  const { code, output } = await runKsvm(["plan", WIDGETS], { kubeconfig, signal, capture: true });
  signal.throwIfAborted();
  quote(output);
  const row = [WIDGETS, NEW, `${OLD},${NEW}`, String(OBJECTS), "migrate", OLD];
  const isPlanned = output.split("\n").some((line) => isDeepStrictEqual(line.trim().split(/\s+/), row));
  check(`it would migrate every object, and ${OLD} could be dropped then`, code === 0 && isPlanned, { code, output });
}

const isOk = ({ status }: { readonly status: number }): boolean => status === 200;
