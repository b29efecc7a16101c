import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { applyHunks, parsePatch } from "./apply-patch.ts";
import { type GoFile, type GoPackage, type GoWorkspace, MODULE } from "./go-workspace.ts";
import type { PinnedFile } from "./pinned-file.ts";
import { suiteFiles } from "./run-in-tree-suite.ts";

const CONTROLLER_FOLDER = "pkg/controller/storageversionmigrator";
const APP_FOLDER = "cmd/kube-controller-manager/app";

/** Whose files are used beyond those of the suite. */
export const CONTROLLER_FILES: readonly PinnedFile[] = [
  { path: `${CONTROLLER_FOLDER}/`, sha256: "3c05e537bc26d956fc2739c1611d2c3674559f837e997253ca00468ddfbd56dc" },
  { path: `${APP_FOLDER}/`, sha256: "d2dac6122f0f801aae9d16136cf5ddf98ff894a6a696a4b4eac3da0cb1719302" },
];

/**
 * Which package of the module stands for one of Kubernetes. kube-controller-manager imports the controller, and the suite imports
 * kube-controller-manager, so these are copied too, with no change but the paths of these imports.
 */
const STAND_INS: Readonly<Record<string, string>> = {
  [CONTROLLER_FOLDER]: "patched/controller",
  [APP_FOLDER]: "patched/app",
  [`${APP_FOLDER}/testing`]: "patched/testing",
};

/** The packages of the patched controller with everything that leads to it. */
export interface PatchedPackages {
  /** Also the unit tests of upstream, as the patch changes them. */
  readonly controller: string;
  readonly suite: string;
  readonly all: readonly GoPackage[];
}

/**
 * Puts the controller, with a patch, together with the suite.
 * @param extra a further file of the suite
 * @throws {Error} where the patch does not apply
 */
export function patchedPackages(workspace: GoWorkspace, patch: string, extra: GoFile): PatchedPackages {
  const hunks = parsePatch(patch);
  const from = (folder: string): readonly GoFile[] =>
    readdirSync(join(workspace.kubernetes, folder))
      .filter((name) => name.endsWith(".go"))
      .map((name) => ({ name, path: join(workspace.kubernetes, folder, name) }));
  const controller = from(CONTROLLER_FOLDER).map((file) => {
    const found = hunks.get(`${CONTROLLER_FOLDER}/${file.name}`);
    return found === undefined
      ? file
      : { ...file, text: applyHunks(file.name, readFileSync(file.path, "utf8"), found) };
  });
  const suite = { folder: "patched/suite", files: [...suiteFiles(workspace), extra].map(withStandIns) };
  const standIns = Object.entries(STAND_INS).map(([folder, standIn]) => ({
    folder: standIn,
    files: folder === CONTROLLER_FOLDER ? controller : from(folder).filter(isNoTest).map(withStandIns),
  }));
  return {
    controller: `${MODULE}/${STAND_INS[CONTROLLER_FOLDER]}`,
    suite: `${MODULE}/${suite.folder}`,
    all: [...standIns, suite],
  };
}

const isNoTest = ({ name }: GoFile): boolean => !name.endsWith("_test.go");

function withStandIns(file: GoFile): GoFile {
  const original = readFileSync(file.path, "utf8");
  let text = original;
  for (const [folder, standIn] of Object.entries(STAND_INS)) {
    text = text.replaceAll(`"k8s.io/kubernetes/${folder}"`, `"${MODULE}/${standIn}"`);
  }
  return text === original ? file : { ...file, text };
}
