/** What package-lock.json (lockfileVersion 3) says of one package. */
export interface LockedPackage {
  readonly version?: string;
  readonly resolved?: string;
  /** Subresource integrity, such as `sha512-…`. */
  readonly integrity?: string;
  readonly license?: string;
  /** Whether nothing but development needs it. */
  readonly dev?: boolean;
  readonly optional?: boolean;
}

/** package-lock.json. */
export interface Lockfile {
  readonly name: string;
  readonly version: string;
  readonly packages: Readonly<Record<string, LockedPackage>>;
}

/**
 * The packages of the image as a bill of materials: the same for the same lockfile, without a time or a random number. `npm sbom
 * --omit=dev` leaves out packages that development needs as well.
 *
 * https://cyclonedx.org/docs/1.5/json/
 */
export function bomOf({ name, version, packages }: Lockfile): object {
  const installed = Object.entries(packages).filter(([path, { dev }]) => path !== "" && dev !== true);
  const components = new Map(installed.map(([path, locked]) => componentOf(path, locked)));
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    version: 1,
    metadata: { component: { type: "application", name, version, purl: `pkg:npm/${name}@${version}` } },
    components: [...components.values()],
  };
}

function componentOf(path: string, locked: LockedPackage): readonly [purl: string, component: object] {
  const { integrity = "", license, optional = false, resolved, version = "" } = locked;
  const name = path.replace(/^.*node_modules\//, "");
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  const [algorithm = "", digest = ""] = integrity.split("-", 2);
  const component = {
    type: "library",
    "bom-ref": purl,
    name,
    version,
    scope: optional ? "optional" : "required",
    hashes: [{ alg: algorithm.replace("sha", "SHA-"), content: Buffer.from(digest, "base64").toString("hex") }],
    ...(license === undefined ? {} : { licenses: [{ expression: license }] }),
    purl,
    ...(resolved === undefined ? {} : { externalReferences: [{ type: "distribution", url: resolved }] }),
  };
  return [purl, component];
}
