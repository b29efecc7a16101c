import { KubeConfig } from "@kubernetes/client-node";
import tap from "tap";
import { systemClock } from "../../src/clock.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { PendingRequests } from "../../src/kube/pending-requests.ts";
import { migrateCrd } from "../../src/library/migrate-crd.ts";
import { kubeconfigFor, type LocalServer, sendJson, startServer } from "../kube/local-server.ts";

const NAME = "widgets.example.com";

await tap.test(
  "migrateCrd() of a library knows what earlier calls of the process saw of the API servers of a cluster",
  async (t) => {
    const told: SeenServers[] = [];
    const pending = Object.getOwnPropertyDescriptor(SeenServers.prototype, "pending") ?? {};
    SeenServers.prototype.pending = function (this: SeenServers) {
      told.push(this);
      return new PendingRequests(systemClock, () => undefined);
    };
    t.teardown(() => Object.defineProperty(SeenServers.prototype, "pending", pending));
    // No cluster has the CRD: what each call is told of is seen before that.
    const start = (): Promise<LocalServer> =>
      startServer(t, ({ path }, response) =>
        path === "/version"
          ? sendJson(response, 200, { major: "1", minor: "36", gitVersion: "v1.36.0" })
          : sendJson(response, 404, {
              kind: "Status",
              reason: "NotFound",
              message: "not found",
              details: { name: NAME },
            }),
      );
    const called = async ({ url }: LocalServer): Promise<SeenServers | undefined> => {
      const kubeConfig = new KubeConfig();
      kubeConfig.loadFromString(kubeconfigFor(url));
      await t.rejects(migrateCrd(NAME, { kubeConfig }), { code: "ResourceNotFound" });
      return told.at(-1);
    };
    const [one, other] = [await start(), await start()];
    const first = await called(one);
    t.equal(await called(one), first, "one that was behind or silent in the first call counts for the second");
    t.not(await called(other), first, "and not for another cluster");
  },
);
