import t from "tap";
import { storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "./cluster.ts";
import {
  EncryptedObjects,
  optionsOf,
  replaceConfig,
  restartWith,
  shownConfig,
  untilReloaded,
} from "./encrypted-objects.ts";

const OBJECTS = 30;
const ALL = OBJECTS * 3;
const RELOADS = { reloads: true };

const cluster = await Cluster.start(t, {
  apiservers: 2,
  overrides: [optionsOf(0, ["key0", "key1", "key2"], RELOADS), optionsOf(1, ["key0", "key1", "key2"], RELOADS)],
});
const { controlPlane } = cluster;
const ENDPOINTS = controlPlane.apiservers.map(({ url }) => url).join(",");

/** Replaces the configuration of both, and waits until they use it: they are not restarted for that. */
async function reload(keys: readonly string[]): Promise<void> {
  const before = await Promise.all([0, 1].map((index) => shownConfig(cluster, index)));
  for (const index of [0, 1]) {
    replaceConfig(cluster, index, keys);
  }
  await untilReloaded(cluster, before);
}

await t.test(
  "a second rotation, without any restart, in the midst of reencrypt: everything has the newest key",
  async (t) => {
    const objects = await EncryptedObjects.create(cluster, OBJECTS);
    await reload(["key1", "key0", "key2"]);
    const [, , custom = ""] = objects.names;
    const flags = ["--settle", "1s", "--apiserver-endpoints", ENDPOINTS, "--max-qps", "20", "--page-size", "5"];
    const run = cluster.spawnKsvm(t, ["reencrypt", ...flags, ...objects.names]);
    await eventually(
      async () => ((await objects.keysOfEach()).get(custom)?.[storedWith("key1")] ?? 0) > 5,
      "it rewrites the last of the resources",
    );
    run.signal("SIGSTOP");
    await reload(["key2", "key1", "key0"]);
    run.signal("SIGCONT");
    const { code, stderr, stdout } = await run.ended;
    t.equal(code, 0, stdout + stderr);
    t.match(stdout, new RegExp(`${custom}: starting again: .*read another encryption configuration`));
    t.match(
      stdout,
      /every resource: since then an API server may have come, gone or changed its encryption: again secrets, configmaps/,
    );
    t.same(await objects.keys(), { [storedWith("key2")]: ALL });
    await restartWith(cluster, ["key2"]);
    t.ok(await objects.areReadable(), "every object can be read without the old keys");
  },
);
