import { isDeepStrictEqual } from "node:util";

import { storedVersionsOf } from "../crd.ts";
import { call, messageOf, readCrd, requestUntil } from "./api.ts";
import {
  apiVersion,
  crdName,
  crdPath,
  GROUP,
  NEW,
  newCrd,
  objectsPath,
  OLD,
  storageChange,
  withoutOldVersion,
} from "./crds.ts";
import { check, quote, say, step } from "./narrate.ts";
import type { Stage } from "./stage.ts";

/** Does by hand, on a CRD of its own, what many how-tos advise, and shows that it loses an object. */
export async function showUnsafePruning({ controlPlane, signal }: Stage): Promise<void> {
  step(`See what pruning by hand would have cost, on a second CRD, ${crdName("gadgets")}`);
  const crd = newCrd("Gadget");
  await call(controlPlane, crd.path, { method: "POST", body: crd.body });
  const body = { apiVersion: apiVersion(OLD), kind: "Gadget", metadata: { name: "precious" }, spec: { size: 1 } };
  const create = { method: "POST", body } as const;
  await requestUntil(() => controlPlane.request(objectsPath("gadgets", OLD), create), isCreated, signal);
  say(`Stored an object as ${OLD}.`);
  const path = crdPath("gadgets");
  const flipped = storageChange(await readCrd(controlPlane, "gadgets"), NEW);
  await call(controlPlane, path, { method: "PATCH", body: flipped });
  say(`Made ${NEW} the storage version.`);
  const object = `${objectsPath("gadgets", NEW)}/precious`;
  const before = await controlPlane.request(object);
  check("the object can be read", before.status === 200, before);
  const pruned = { status: { storedVersions: [NEW] } };
  await call(controlPlane, `${path}/status`, { method: "PATCH", body: pruned });
  const current = await readCrd(controlPlane, "gadgets");
  const stored = storedVersionsOf(current);
  check(`storedVersions can be pruned to [${NEW}] by hand, unmigrated`, isDeepStrictEqual(stored, [NEW]), stored);
  await call(controlPlane, path, { method: "PATCH", body: withoutOldVersion(current) });
  say(`Dropped ${OLD}: the API server accepted it.`);
  const after = await requestUntil(() => controlPlane.request(object), isUnreadable, signal);
  check("the object can no longer be read", isUnreadable(after), after);
  quote(messageOf(after));
  const counts = await controlPlane.stored.countByVersion(GROUP, "gadgets");
  check(`though it is still in etcd, as ${OLD}`, isDeepStrictEqual(counts, { [apiVersion(OLD)]: 1 }), counts);
}

const isCreated = ({ status }: { readonly status: number }): boolean => status === 201;
// Not a 404, and not the short time in which a changed CRD is not served.
const isUnreadable = (answer: { readonly status: number; readonly body: unknown }): boolean =>
  answer.status === 500 && messageOf(answer).includes(OLD);
