import { stringify } from "yaml";

/** What a krew manifest names. */
export interface KrewRelease {
  readonly version: string;
  /** Where the archive can be downloaded from. */
  readonly uri: string;
  readonly sha256: string;
}

/** The systems that the launcher of the archive runs on. */
const SYSTEMS = ["linux", "darwin"] as const;

/**
 * The manifest of the plugin `kubectl ksvm`: one archive for all systems, whose program is JavaScript.
 *
 * https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
 */
export function krewManifest({ version, uri, sha256 }: KrewRelease): string {
  return stringify(
    {
      apiVersion: "krew.googlecontainertools.github.com/v1alpha2",
      kind: "Plugin",
      metadata: { name: "ksvm" },
      spec: {
        version: `v${version}`,
        shortDescription: "Migrate objects to their storage version",
        description:
          "Rewrites every object of a resource in its storage version and prunes\nstatus.storedVersions of its CRD, by KEP-2855: the storage version is frozen\n" +
          "meanwhile, and nothing is pruned before every API server was seen to write it.\n",
        caveats: "It needs Node.js 24 or newer.\n",
        platforms: SYSTEMS.map((os) => ({
          selector: { matchLabels: { os } },
          uri,
          sha256,
          bin: "kubectl-ksvm",
          files: [{ from: "*", to: "." }],
        })),
      },
    },
    { lineWidth: 0 },
  );
}
