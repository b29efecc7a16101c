import type { PinnedFile } from "./pinned-file.ts";

/** A commit of https://github.com/kubernetes-sigs/kube-storage-version-migrator, whose modules no proxy has. */
const PEER_COMMIT = "5c8923c5ff96ceb4435f66b986b5aec2dd0cbc22";

/** How messages name it. */
export const PEER = `kube-storage-version-migrator at ${PEER_COMMIT.slice(0, 7)}`;

/** Everything that the end-to-end test is made of. */
export const PEER_FILES: readonly PinnedFile[] = [
  { path: "go.mod", sha256: "fe01a2a78319710ca1caa95e7ded83d04c27cb1c6b1d43b76018bd5d7ebb8147" },
  { path: "go.sum", sha256: "c2edb0d7efda8827c0a2cae841b4122b3392ffa0d0ee80846be35e23d5c237b6" },
  { path: "test/e2e/crd.yaml", sha256: "e8244a7a2580675349720527f3a701888a52126d6d82aeb706127b048ba8c37a" },
  { path: "test/e2e/e2e_test.go", sha256: "7a6e2ad35e4c0501956dbf5d6e5a89f82faadfff956be23c73f297185faf3f4b" },
  { path: "test/e2e/tests/chaos.go", sha256: "6f34847c934ec5a91105a56757a7537ffaf1e0d7712ccc698431486f4a1b321f" },
  {
    path: "test/e2e/tests/crd-migration.go",
    sha256: "173ecd227c52ccafb50ca8c972b8e2681fa3a83073bac97f615de59eccadc5d7",
  },
  { path: "test/e2e/tests/setup.go", sha256: "8f6b877695a186a11ebca1e4d722a9a851e873f4f94162a36e39c2edcc1bdd60" },
  { path: "test/e2e/util/util.go", sha256: "93dc5dbc8f70432c125c561e6dc638dcbb24c3ce0babb22cb6c465debae8eb54" },
  {
    path: "test/e2e/chaosmonkey/chaosmonkey.go",
    sha256: "61e8692f2d6cfa392555089ddc77f7fcff4edc61f49c82030fdc11cb7728dcb0",
  },
  { path: "manifests/initializer.yaml", sha256: "fa9087222b6d56aa160e9ce0829f2a248bf0212ed5b31c539f2c6165531b0ade" },
  { path: "manifests/kustomization.yaml", sha256: "c50f761be72f0746981f890bfac387bf1606e5370eb3b2eee9f5e65ab91567f4" },
  { path: "manifests/migrator.yaml", sha256: "4111ab949394c7bded9874ba8df20568ba2e619c908448ccfe18e9732f1c69bc" },
  { path: "manifests/namespace-rbac.yaml", sha256: "3b747905b8e374cac8c0fe92eb2bd325c05bfd43224d20f798ce163e6c8e711b" },
  {
    path: "manifests/storage_migration_crd.yaml",
    sha256: "63c3d7fad0c548f922c22b9eb7f9638bb516ad46666b8b98c1abec94d89e7572",
  },
  {
    path: "manifests/storage_state_crd.yaml",
    sha256: "d68a75dcfbe1ffb66c66113000af6e2da8c46c85fe8221f698408a846577ce45",
  },
  {
    path: "manifests/storage_state_crd.yaml-patch",
    sha256: "bb9675de54dac218eba5988705a13e9e79f0731fa6ba3aff777b9290a255d62c",
  },
  { path: "manifests/trigger.yaml", sha256: "bd932c2b6154909c3a547a9bfc83f798480de3ed8ec858422c28f62b631aa6d0" },
  { path: "pkg/", sha256: "1c50752607cc92d40779052aaf529aa68575ff1e4d3567fb8a2b0e1edb826382" },
  { path: "vendor/", sha256: "caad3da87ba418e707701571f3ed54a31add92e1b4a85f64d92f967e8e4cafa0" },
];
