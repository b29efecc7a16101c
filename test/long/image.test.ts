import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { kubeconfigText } from "../control-plane/kubeconfig.ts";
import { Cluster, eventually } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { ANY_USER, ImageRoot, whyNoImageRoot } from "./image-root.ts";
import { applyBase, tokenOf } from "../integration/installation.ts";
import { freePort, ONLY_CUSTOM, QUICK_FLAGS } from "../processes/replica.ts";

const skip = whyNoImageRoot();
/** The limit of the pods of deploy/. */
const LIMIT_MIB = 320;
const MIGRATED = 200;

await t.test(
  "the image's files alone install, migrate and rotate, read-only, without root, within the limit",
  { skip },
  async (t) => {
    const cluster = await Cluster.start(t);
    await applyBase(cluster);
    const image = await ImageRoot.make(t);
    for (const program of ["bin/sh", "bin/bash", "usr/bin/npm", "usr/bin/apt-get", "app/node_modules/typescript"]) {
      t.notOk(existsSync(join(image.dir, program)), program);
    }
    const { apiservers, ca } = cluster.controlPlane;
    const kubeconfigFor = async (account: string): Promise<string> => {
      const token = await tokenOf(cluster, account);
      const text = kubeconfigText(apiservers[0]?.url ?? "", ca, { name: account, token });
      return `--kubeconfig=${image.mount(account, text)}`;
    };
    const asCertificates = await kubeconfigFor("storage-migrator-certificates");
    const ensured = await image.start(t, ["certs", "ensure", asCertificates]).ended;
    t.match(ensured, { code: 0 }, ensured.stderr);

    const [webhookPort, healthPort] = [await freePort(), await freePort()];
    const flags = [
      "--webhook-host=127.0.0.1",
      `--webhook-port=${webhookPort}`,
      `--webhook-url=https://127.0.0.1:${webhookPort}/validate`,
      `--replica-endpoints=127.0.0.1:${webhookPort}`,
      "--health-host=127.0.0.1",
      `--health-port=${healthPort}`,
      "--shutdown-drain=1s",
      "--log-format=json",
    ];
    const asController = await kubeconfigFor("storage-migrator");
    const controller = image.start(t, ["controller", asController, ...flags, ...QUICK_FLAGS, ...ONLY_CUSTOM], {
      environment: { NODE_OPTIONS: "--max-old-space-size=192" },
    });
    const kind = new TestKind("image");
    await cluster.createStale(kind, MIGRATED);
    const isPruned = async (): Promise<boolean> => storedVersionsOf(await cluster.crd(kind)).join() === "v1";
    await eventually(isPruned, "storedVersions is pruned", 180_000).catch((error: unknown) => {
      t.comment(controller.stderr);
      throw error;
    });
    t.same(await cluster.storedAs(kind), { v1: MIGRATED });

    const dwell = ["--apiserver-dwell=1s", "--replica-dwell=1s"];
    const names = ["--extra-names=127.0.0.1", `--replica-endpoints=127.0.0.1:${webhookPort}`];
    const rotate = ["certs", "rotate", "--now", ...dwell, ...names, asCertificates];
    const rotated = await image.start(t, rotate, { user: ANY_USER }).ended;
    t.match(rotated, { code: 0 }, rotated.stderr);
    t.equal(execFileSync("find", [join(image.dir, "app"), "!", "-perm", "-o+r"], { encoding: "utf8" }), "");

    // unshare, sh and chroot become the program: it is one process from the beginning.
    const status = readFileSync(`/proc/${controller.pid}/status`, "utf8");
    t.match(status, /^Uid:\t65532\t65532/m);
    t.match(readFileSync(`/proc/${controller.pid}/mountinfo`, "utf8"), / \/ ro[, ]/);
    const peakMib = Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024;
    t.comment(`peak memory ${peakMib.toFixed(0)} MiB`);
    t.ok(peakMib > 20 && peakMib < LIMIT_MIB, `${peakMib} MiB`);
    controller.signal("SIGTERM");
    t.equal((await controller.ended).code, 0, controller.stderr);
    t.notMatch(controller.stderr, /EROFS|EACCES|read-only/i, "nothing was written");
  },
);
