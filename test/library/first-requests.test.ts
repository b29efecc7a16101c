import tap from "tap";
import { migrateCrd } from "../../src/library/migrate-crd.ts";
import { configFor, kubeconfigFor, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const NAME = "widgets.example.com";

await tap.test("migrateCrd() asks for the CRD again where an API server is unavailable for a moment", async (t) => {
  let asked = 0;
  const { url } = await startServer(t, ({ path }, response) => {
    if (path === "/version") {
      return sendJson(response, 200, { major: "1", minor: "36", gitVersion: "v1.36.0" });
    }
    return path.endsWith(`/${NAME}`) && ++asked === 1
      ? sendStatus(response, 503, { reason: "ServiceUnavailable", message: "apiserver is shutting down" })
      : sendStatus(response, 404, { reason: "NotFound", message: "not found", details: { name: NAME } });
  });
  const told: string[] = [];
  const kubeConfig = configFor(kubeconfigFor(url));
  await t.rejects(migrateCrd(NAME, { kubeConfig, onEvent: ({ type }) => told.push(type) }), {
    code: "ResourceNotFound",
  });
  t.same(told, ["retrying"]);
});
