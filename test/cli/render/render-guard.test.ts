import tap from "tap";
import { renderGuard } from "../../../src/cli/render/render-guard.ts";
import type { PruneGuardStatus } from "../../../src/prune-guard/manage-prune-guard.ts";

const CHANGED: PruneGuardStatus = {
  state: "changed",
  mode: "deny",
  allowedUsers: [],
  restores: false,
  objects: ["validatingadmissionpolicies/a"],
  allowances: [],
};

function firstLineOf(status: PruneGuardStatus): string {
  return renderGuard(status, "table").split("\n")[0] ?? "";
}

await tap.test(
  "renderGuard() names the command that puts a changed guard right, in its mode and with its users",
  async (t) => {
    t.match(firstLineOf(CHANGED), "ksvm guard enable --mode=deny puts it right");
    const users = ["system:serviceaccount:capi-system:capi-manager", "an admin's $(tool)"];
    t.match(
      firstLineOf({ ...CHANGED, allowedUsers: users }),
      `--allow-user=system:serviceaccount:capi-system:capi-manager --allow-user='an admin'\\''s $(tool)' puts it right`,
    );
  },
);

await tap.test("renderGuard() says that nothing watches only where the guard is off", async (t) => {
  const { mode: _mode, ...rest } = CHANGED;
  t.match(firstLineOf({ ...rest, state: "off" }), "off: nothing watches");
  t.match(firstLineOf({ ...CHANGED, state: "warn", mode: "warn", objects: [] }), "warn: an update that removes");
});
