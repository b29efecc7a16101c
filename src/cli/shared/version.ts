import packageJson from "../../../package.json" with { type: "json" };

/** This program's version, as package.json has it. */
export function programVersion(): string {
  return packageJson.version;
}
