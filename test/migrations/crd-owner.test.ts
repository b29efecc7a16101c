import tap from "tap";

import { crdOwnerOf, ownersInPlaceOf } from "../../src/migrations/crd-owner.ts";

const CRD = crdOwnerOf({ name: "storageversionmigrations.migration.k8s.io", uid: "crd-1" });
const ROLE = {
  apiVersion: "rbac.authorization.k8s.io/v1",
  kind: "ClusterRole",
  name: "system:storage-migrator",
  uid: "role-1",
};
const OTHER = { apiVersion: "v1", kind: "Namespace", name: "a", uid: "ns-1" };

await tap.test("ownersInPlaceOf() puts the CRD in the place of the ClusterRole alone", (t) => {
  t.same(ownersInPlaceOf([ROLE], CRD), [CRD]);
  t.same(ownersInPlaceOf([ROLE, OTHER], CRD), [OTHER, CRD]);
  t.same(ownersInPlaceOf([CRD, ROLE], CRD), [CRD], "once");
  t.same(ownersInPlaceOf([{ ...ROLE, uid: "of a role that was replaced" }], CRD), [CRD]);
  t.equal(ownersInPlaceOf([], CRD), undefined, "a user's own migration has no owner");
  t.equal(ownersInPlaceOf([OTHER], CRD), undefined);
  t.equal(ownersInPlaceOf([{ ...ROLE, name: "another" }], CRD), undefined, "another ClusterRole is what a user chose");
  t.equal(ownersInPlaceOf([CRD], CRD), undefined);
  t.end();
});
