import { withCluster } from "../with-cluster.ts";
import { Arena, type Part, type Row, rounded } from "./arena.ts";
import { ksvm } from "./contenders.ts";
import { HelperProcess } from "./helper-process.ts";
import { withRefusals } from "./route.ts";
import { issueSelfSigned } from "../../test/certs/self-signed.ts";

const OBJECTS = 3_000;
const WEBHOOK_MS = 10;

export const ROUGH: Part = {
  name: "rough",
  title: "Rough conditions",
  about: `${OBJECTS.toLocaleString("en")} objects of 2 KB: through a proxy that answers 429 or 503 to a share of the writes, and with a conversion webhook that takes ${WEBHOOK_MS} ms.`,
  async run(context) {
    const rows: Row[] = [];
    await withCluster({ signal: context.signal }, async (cluster) => {
      const arena = await Arena.create(cluster, OBJECTS, context);
      for (const share of [0, 0.2, 0, 0.2]) {
        await withRefusals(cluster, share, async (route) => {
          rows.push(await arena.measure(ksvm(`ksvm, ${share * 100} % refused`), route));
        });
      }
    });
    await withCluster({ signal: context.signal }, async (cluster) => {
      const { caPem, certPem, keyPem } = await issueSelfSigned({
        dnsNames: ["localhost"],
        ipAddresses: ["127.0.0.1"],
        now: new Date(),
        lifetimeMs: 86_400_000,
      });
      const webhook = HelperProcess.start("slow-conversion.ts", [
        JSON.stringify({ cert: certPem, key: keyPem, ms: WEBHOOK_MS }),
      ]);
      try {
        const clientConfig = {
          url: `https://127.0.0.1:${await webhook.firstLine()}/convert`,
          caBundle: Buffer.from(caPem).toString("base64"),
        };
        const conversion = { strategy: "Webhook", webhook: { conversionReviewVersions: ["v1"], clientConfig } };
        const arena = await Arena.create(cluster, OBJECTS, context, { conversion });
        rows.push(await arena.measure(ksvm("ksvm, with a conversion webhook")));
      } finally {
        await webhook.end();
      }
    });
    const mean = (name: string): number => {
      const rates = rows.filter((row) => row["name"] === name).map((row) => Number(row["objects/s"]));
      return rates.reduce((sum, rate) => sum + rate, 0) / rates.length;
    };
    const whole = mean("ksvm, 0 % refused");
    return rows.map((row) => ({
      ...row,
      "of 0 % refused": String(row["name"]).endsWith("refused")
        ? rounded(Number(row["objects/s"]) / whole, 2)
        : undefined,
    }));
  },
};
