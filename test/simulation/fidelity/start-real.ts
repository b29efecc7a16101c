import { startControlPlane } from "../../control-plane/control-plane.ts";
import { RealWorld } from "./real-world.ts";
import { OVERRIDES, SERVED } from "./server-options.ts";

/** Starts two API servers over one etcd. */
export async function startReal(): Promise<{ readonly world: RealWorld; readonly close: () => Promise<void> }> {
  const controlPlane = await startControlPlane({
    apiservers: 2,
    // Compactions are for the script to make.
    compactionInterval: "0",
    users: [{ name: "limited" }],
    ...SERVED,
    overrides: OVERRIDES,
  });
  const world = new RealWorld(controlPlane);
  const close = async (): Promise<void> => {
    await world.close();
    await controlPlane.stop();
  };
  return { world, close };
}
