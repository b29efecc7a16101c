import { isDeepStrictEqual } from "node:util";

import { type CustomResourceDefinition, servedVersionsOf } from "../crd.ts";
import { hasFreezeAnnotation } from "../integration/frozen.ts";
import { decodeStored } from "../control-plane/decode-stored.ts";
import { listNames, messageOf, readCrd, requestUntil } from "./api.ts";
import { apiVersion, crdPath, GROUP, NEW, objectsPath, OLD, storageChange, withoutOldVersion } from "./crds.ts";
import { runKsvm } from "./ksvm.ts";
import { check, formatCount, quote, step } from "./narrate.ts";
import { listOurs, OBJECTS, type Stage, WIDGETS } from "./stage.ts";
import type { WriteReport } from "./writer.ts";

/** @returns how many objects there are */
export async function lookIntoEtcd({ controlPlane }: Stage, writes: WriteReport): Promise<number> {
  step("Look into etcd");
  const listed = await listNames(controlPlane, objectsPath("widgets", NEW));
  const objects = await controlPlane.stored.storedObjects(GROUP, "widgets");
  const names = objects.map(({ namespace, name }) => `${namespace}/${name}`).sort();
  check(
    `it holds ${formatCount(names.length)} objects, the same as the API server lists`,
    names.length >= OBJECTS + writes.created && isDeepStrictEqual(names, listed),
    { stored: names.length, listed: listed.length, created: writes.created },
  );
  const counts = await controlPlane.stored.countByVersion(GROUP, "widgets");
  check(
    `every one of them is stored as ${NEW}`,
    isDeepStrictEqual(counts, { [apiVersion(NEW)]: listed.length }),
    counts,
  );
  const sizes = new Map(objects.map(({ name, raw }) => [name, sizeIn(raw)]));
  const lost = [...writes.sizes].filter(([name, size]) => sizes.get(name) !== size);
  check("each holds what the writing client wrote last: no write was lost", lost.length === 0, lost.slice(0, 3));
  const crd = (await controlPlane.stored.storedCrd(WIDGETS)) as CustomResourceDefinition | undefined;
  const stored = crd?.status?.storedVersions;
  check(`storedVersions is [${NEW}]`, isDeepStrictEqual(stored, [NEW]), stored);
  return listed.length;
}

export async function lookForLeftovers({ controlPlane, signal }: Stage): Promise<void> {
  step("Look for what ksvm left behind, and run it again");
  const crd = await readCrd(controlPlane, "widgets");
  check("the annotation that froze the CRD is gone", !hasFreezeAnnotation(crd), crd.metadata.annotations);
  const ours = await listOurs(controlPlane);
  check("so are the ValidatingAdmissionPolicy, its binding and the Lease", ours.length === 0, ours);
  const flip = { method: "PATCH", body: storageChange(crd, OLD) } as const;
  const { status } = await controlPlane.request(`${crdPath("widgets")}?dryRun=All`, flip);
  check("the storage version can be changed again (a dry-run is accepted)", status === 200, status);
  const kubeconfig = controlPlane.kubeconfigFor();
  const { code, output } = await runKsvm(["migrate", WIDGETS], { kubeconfig, signal, capture: true });
  signal.throwIfAborted();
  quote(output);
  check("a second run has nothing to do", code === 0 && output.includes("nothing to do"), { code, output });
}

export async function dropOldVersion({ controlPlane, signal }: Stage, objects: number): Promise<void> {
  step(`Drop ${OLD} from the CRD, which was refused before`);
  const before = await readCrd(controlPlane, "widgets");
  const path = crdPath("widgets");
  const answer = await controlPlane.request(path, { method: "PATCH", body: withoutOldVersion(before) });
  const crd = await readCrd(controlPlane, "widgets");
  check(
    "the API server accepts it now",
    answer.status === 200 && isDeepStrictEqual(servedVersionsOf(crd), [NEW]),
    answer.status === 200 ? crd.spec.versions : messageOf(answer),
  );
  await requestUntil(() => controlPlane.request(objectsPath("widgets", OLD)), isNotFound, signal);
  const listed = await listNames(controlPlane, objectsPath("widgets", NEW));
  check(`all ${formatCount(objects)} objects can be read`, listed.length === objects, listed.length);
}

function sizeIn(raw: Buffer): number | undefined {
  const { spec } = decodeStored(raw) as { readonly spec?: { readonly size?: number } };
  return spec?.size;
}

const isNotFound = ({ status }: { readonly status: number }): boolean => status === 404;
