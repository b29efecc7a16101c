import type { SourceEdit } from "./edit-source.ts";
import type { PinnedFile } from "./pinned-file.ts";

// The suite of Kubernetes' own controller, in the Go module that test/control-plane/go.mod names.

/** The version that the checksums and the edits below are of. */
export const KUBERNETES = "v1.36.3";

/** The folder of the suite in the module k8s.io/kubernetes. */
export const SUITE_FOLDER = "test/integration/storageversionmigrator";

export const SUITE_FILES: readonly PinnedFile[] = [
  {
    path: `${SUITE_FOLDER}/main_test.go`,
    sha256: "ce7770452eb03626ec4a4885d75044b3c744295c13977bf8f12ec41e698f74d4",
  },
  {
    path: `${SUITE_FOLDER}/storageversionmigrator_test.go`,
    sha256: "2c23603a146c54bbe345b2e7b64ed186ce97c7af1eae6755a895e1e9042ea87c",
  },
  {
    path: `${SUITE_FOLDER}/util.go`,
    sha256: "812986e4145e33fdc18d4e1d22264d48bdf76b37a229824aa6f7154ec5f144fd",
  },
];

/** What is applied before `ksvm controller` starts: deploy/base with the component that serves in-tree migrations. */
export const SUITE_MANIFESTS = "test/conformance/served";

/**
 * The flags of `ksvm controller` beyond those that a process on loopback needs. The suite asks for each migration by an object, as with the in-tree controller, which has no trigger. All else is as by default, the
 * settle time of 65 s too.
 */
export const SUITE_FLAGS: readonly string[] = ["--serve-in-tree-migrations", "--trigger=off"];

const IN_TREE_USER = "system:serviceaccount:kube-system:storage-version-migrator-controller";
const KSVM_USER = "system:serviceaccount:kube-storage-migration:storage-migrator";

/** The start of the controller, in util.go. */
export const START_EDITS: readonly SourceEdit[] = [
  {
    why: "nothing else of kube-controller-manager is needed",
    from: `	kubecontrollermanagertesting "k8s.io/kubernetes/cmd/kube-controller-manager/app/testing"\n`,
    to: "",
  },
  {
    why: "ksvm is started in place of the in-tree controller, by test/conformance/start_ksvm.go",
    from: `	kcm := kubecontrollermanagertesting.StartTestServerOrDie(t, ctx, []string{
		"--kubeconfig=" + kubeConfigFile,
		"--controllers=garbagecollector,svm",     // these are the only controllers needed for this test
		"--use-service-account-credentials=true", // exercise RBAC of SVM controller
		"--leader-elect=false",                   // KCM leader election calls os.Exit when it ends, so it is easier to just turn it off altogether
	})
`,
    to: "	stopKsvm := startKsvm(t, kubeConfigFile)\n",
  },
  { why: "and ended", from: "		kcm.TearDownFn()\n", to: "		stopKsvm()\n" },
];

/** The assertions of util.go that name the user or the field manager of the in-tree controller. */
export const ASSERTION_EDITS: readonly SourceEdit[] = [
  {
    why: "the audit log records custom resources for the user of the controller alone",
    from: `    users: ["${IN_TREE_USER}"]\n`,
    to: `    users: ["${KSVM_USER}"]\n`,
  },
  {
    why: "at the end of each test, every audited answer to that user must be 200 or 409",
    from: `			if event.User != "${IN_TREE_USER}" {\n`,
    to: `			if event.User != "${KSVM_USER}" {\n`,
  },
  {
    why: "the audited patch of each Secret carries the field manager of ksvm",
    from: 'secrets/%s?fieldManager=storage-version-migrator-controller"',
    to: 'secrets/%s?fieldManager=ksvm-rewrite"',
  },
  {
    why: "and is sent by the user of ksvm",
    from: `				User:              "${IN_TREE_USER}",\n`,
    to: `				User:              "${KSVM_USER}",\n`,
  },
];
