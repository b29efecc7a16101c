import { KubeConfig } from "@kubernetes/client-node";
import tap from "tap";
import { withCluster } from "../../src/library/cluster.ts";
import { sendJson, startServer } from "../kube/local-server.ts";

await tap.test(
  "withCluster() keeps to the cluster and the user of a KubeConfig whose context the program changes in the meantime",
  async (t) => {
    const start = () =>
      startServer(t, (_request, response) =>
        sendJson(response, 200, { major: "1", minor: "36", gitVersion: "v1.36.0" }),
      );
    const servers = { one: await start(), other: await start() };
    const kubeConfig = new KubeConfig();
    kubeConfig.loadFromOptions({
      clusters: Object.entries(servers).map(([name, { url }]) => ({ name, server: url, skipTLSVerify: true })),
      users: Object.keys(servers).map((name) => ({ name, token: name })),
      contexts: Object.keys(servers).map((name) => ({ name, cluster: name, user: name })),
      currentContext: "one",
    });
    const called = withCluster({ kubeConfig }, async ({ transport }) => {
      // As for each API server behind one address, and for one with an address of its own.
      const opened = [transport.another({}), transport.another({ server: servers.one.url })];
      for (const another of opened) {
        await another.request({ method: "GET", path: "/asked" });
        await another.close();
      }
      return transport.config.getCurrentCluster()?.name;
    });
    // The program calls for the next cluster at the same time, and has a tunnel to it.
    kubeConfig.setCurrentContext("other");
    Object.assign(kubeConfig.getCluster("one") ?? {}, { server: servers.other.url });
    t.equal(await called, "one");
    t.same(servers.other.seen, [], "what rests on the API servers of one cluster asks those of no other");
    t.equal(servers.one.seen.filter(({ path }) => path === "/asked").length, 2);
    t.same(
      [...new Set(servers.one.seen.map(({ headers }) => headers.authorization))],
      ["Bearer one"],
      "and has the credentials of no other",
    );
  },
);
