import { startControlPlane } from "../../control-plane/control-plane.ts";
import { encryptionConfig } from "../../control-plane/encryption.ts";
import { RealWorld } from "./real-world.ts";

/** The keys of both API servers of the script, the one that each writes with first. */
export const KEYS = [
  ["key1", "key2"],
  ["key2", "key1"],
] as const;

/** Starts two API servers over one etcd. */
export async function startReal(): Promise<{ readonly world: RealWorld; readonly close: () => Promise<void> }> {
  const controlPlane = await startControlPlane({
    apiservers: 2,
    // Compactions are for the script to make.
    compactionInterval: "0",
    users: [{ name: "limited" }],
    overrides: KEYS.map((keys, index) => ({
      encryptionConfig: encryptionConfig(keys, ["secrets"]),
      hostname: `apiserver-${index}`,
    })),
  });
  const world = new RealWorld(controlPlane);
  const close = async (): Promise<void> => {
    await world.close();
    await controlPlane.stop();
  };
  return { world, close };
}
