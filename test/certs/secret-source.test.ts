import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import tap from "tap";
import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import type { SecretObject } from "../../src/certs/secret-contents.ts";
import { SecretSource } from "../../src/certs/secret-source.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ServingCertificate } from "../../src/webhook/serving-certificate.ts";
import { sendJson, sendStatus, startServer } from "../kube/local-server.ts";

// The server here is local: a real API server cannot be made to stop sending events on a watch that stays open.
// test/integration/certs.test.ts has the real one.

const issue = () =>
  issueSelfSigned({ dnsNames: ["localhost"], ipAddresses: [], now: new Date(), lifetimeMs: 3_600_000 });
const [first, second] = await Promise.all([issue(), issue()]);
const ref = { namespace: "ns", name: "tls" };

/** cert-manager issues certificates that are valid from the second of their issue, issueSelfSigned() five minutes before. */
function issueSoon() {
  const now = new Date(Date.now() + 300_000 + 2_000);
  return issueSelfSigned({ dnsNames: ["localhost"], ipAddresses: [], now, lifetimeMs: 3_600_000 });
}

function secretWith({ certPem, keyPem }: { certPem: string; keyPem: string }, resourceVersion: string) {
  const [certificate, key] = [certPem, keyPem].map((text) => Buffer.from(text).toString("base64"));
  return { metadata: { ...ref, resourceVersion }, data: { "tls.crt": certificate, "tls.key": key } };
}

const event = (secret: object): string => `${JSON.stringify({ type: "ADDED", object: secret })}\n`;

async function until(condition: () => boolean): Promise<void> {
  for (let tries = 0; tries < 1_000 && !condition(); tries++) await delay(10);
  if (!condition()) throw new Error("Cannot see in ten seconds what was waited for");
}

await tap.test(
  "SecretSource outlasts that it may not read yet, a watch that fell silent, and a bad pair",
  async (t) => {
    let answer: "forbidden" | "missing" | object = "forbidden";
    const server = await startServer(t, ({ query }, response) => {
      if (answer === "forbidden") return sendStatus(response, 403, { message: "secrets is forbidden" });
      // From here on the watch never says a word.
      if (query.has("watch")) return response.flushHeaders();
      const absent = { reason: "NotFound", details: { name: "tls" } };
      return answer === "missing" ? sendStatus(response, 404, absent) : sendJson(response, 200, answer);
    });
    const certificate = new ServingCertificate();
    const results: string[] = [];
    certificate.subscribe(({ result }) => results.push(result));
    const log: string[] = [];
    const logger = pino({ level: "trace" }, { write: (line: string) => log.push(line) });
    const abort = new AbortController();
    const client = new ApiClient(server.transport());
    const source = new SecretSource({ certificate, logger, client, ref, resyncMs: 20 });
    const ended = source.run(abort.signal);
    await until(() => log.length >= 2);
    t.equal(certificate.current, undefined);
    answer = "missing";
    const lines = (): readonly string[] => log.filter((line) => line.includes("Waiting for the Secret"));
    await until(() => lines().length > 0);
    await delay(100);
    t.equal(lines().length, 1, "it says once what it waits for");
    t.match(lines()[0], /"secret":"ns\/tls"/);
    answer = { metadata: ref, data: { "tls.crt": "", "tls.key": "" } };
    await delay(50);
    t.same(results, [], "nobody has filled it: there is nothing to turn down");
    answer = secretWith(first, "1");
    await until(() => certificate.current?.certPem === first.certPem);
    answer = secretWith({ certPem: second.certPem, keyPem: first.keyPem }, "2");
    await until(() => results.includes("rejected"));
    await delay(100);
    t.same(results, ["loaded", "rejected"], "turned down once, not at every look");
    t.equal(certificate.current?.certPem, first.certPem, "the last good pair stays");
    answer = secretWith(second, "3");
    await until(() => certificate.current?.certPem === second.certPem);
    const watch = server.seen.find(({ query }) => query.has("watch"));
    t.equal(watch?.path, "/api/v1/namespaces/ns/secrets");
    t.equal(watch?.query.get("fieldSelector"), "metadata.name=tls");
    abort.abort(new Error("enough"));
    await ended;
    const keys = [first, second].flatMap(({ keyPem }) => keyPem.split("\n").filter((line) => line.length > 40));
    t.same(
      keys.filter((line) => log.join("").includes(line)),
      [],
      "no key is in the log",
    );
  },
);

await tap.test(
  "SecretSource never replaces a newer resourceVersion by an older one, from wherever it comes",
  async (t) => {
    const [older, newer] = [secretWith(first, "9"), secretWith(second, "10")];
    let held: (() => void) | undefined;
    let sendEvent: ((text: string) => unknown) | undefined;
    let gets = 0;
    let isRestored = false;
    const server = await startServer(t, async ({ query }, response) => {
      if (query.has("watch")) {
        response.flushHeaders();
        sendEvent = (text) => response.write(text);
        return;
      }
      gets++;
      if (gets === 1) {
        // A read that takes long: it shows what was there before the event that overtakes it.
        await new Promise<void>((resolve) => (held = resolve));
        return sendJson(response, 200, older);
      }
      return sendJson(response, 200, isRestored ? older : newer);
    });
    const certificate = new ServingCertificate();
    const client = new ApiClient(server.transport());
    const seen: (string | undefined)[] = [];
    const onSecret = (secret: SecretObject | undefined) => seen.push(secret?.metadata.resourceVersion);
    const logger = pino({ level: "silent" });
    const abort = new AbortController();
    let wentBack = 0;
    const onOlder = (): void => void wentBack++;
    const source = new SecretSource({ certificate, logger, client, ref, resyncMs: 20, onSecret, onOlder });
    const ended = source.run(abort.signal);
    await until(() => sendEvent !== undefined && held !== undefined);
    sendEvent?.(event(newer));
    await until(() => certificate.current?.certPem === second.certPem);
    held?.();
    await until(() => gets > 2);
    t.same(new Set(seen), new Set(["10"]), "the read that was overtaken");
    // As from an API server whose watch cache is behind, to which the connection moved.
    sendEvent?.(event(older));
    const before = gets;
    await until(() => gets > before + 2);
    t.same(new Set(seen), new Set(["10"]), "the watch that is behind");
    t.equal(certificate.current?.certPem, second.certPem);
    t.equal(wentBack, 0);
    isRestored = true;
    await until(() => certificate.current?.certPem === first.certPem && wentBack > 0);
    const after = gets;
    await until(() => gets > after + 2);
    t.equal(wentBack, 1, "told once");
    t.pass("a read that shows an older one all the time: etcd was restored from a backup");
    abort.abort(new Error("enough"));
    await ended;
  },
);

await tap.test(
  "SecretSource serves a pair that is valid from the next second on, and says nothing of it",
  async (t) => {
    let pair = await issueSoon();
    let send: ((text: string) => unknown) | undefined;
    let reads = 0;
    const server = await startServer(t, ({ query }, response) => {
      if (query.has("watch")) {
        response.flushHeaders();
        send = (text) => response.write(text);
        return;
      }
      reads++;
      sendJson(response, 200, secretWith(pair, "1"));
    });
    const certificate = new ServingCertificate();
    const results: string[] = [];
    certificate.subscribe(({ result }) => results.push(result));
    const abort = new AbortController();
    const client = new ApiClient(server.transport());
    const source = new SecretSource({ certificate, logger: pino({ level: "silent" }), client, ref });
    const ended = source.run(abort.signal);
    await until(() => certificate.current?.certPem === pair.certPem && send !== undefined);
    // One right after the other: each is tried again as soon as the first one was.
    for (const resourceVersion of ["2", "3", "4", "5"]) {
      pair = await issueSoon();
      send?.(event(secretWith(pair, resourceVersion)));
      await until(() => certificate.current?.certPem === pair.certPem);
    }
    t.same(results, ["loaded", "loaded", "loaded", "loaded", "loaded"]);
    t.equal(reads, 1, "without another look at the Secret");
    abort.abort(new Error("enough"));
    await ended;
  },
);

await tap.test(
  "SecretSource serves the pair of an earlier version until the Secret has one, and never after that",
  async (t) => {
    const labels = { "app.kubernetes.io/managed-by": "ksvm" };
    const ofOther = { ...secretWith(second, "7"), metadata: { namespace: "ns", name: "old", resourceVersion: "7" } };
    const ofOld = { ...ofOther, metadata: { ...ofOther.metadata, labels } };
    let old: object = ofOther;
    let own: object = { metadata: { ...ref, resourceVersion: "3" } };
    const asked: string[] = [];
    const server = await startServer(t, ({ path, query }, response) => {
      if (query.has("watch")) return response.flushHeaders();
      asked.push(path);
      return sendJson(response, 200, path.endsWith("/old") ? old : own);
    });
    const certificate = new ServingCertificate();
    const abort = new AbortController();
    const source = new SecretSource({
      certificate,
      logger: pino({ level: "silent" }),
      client: new ApiClient(server.transport()),
      ref,
      takeOverFrom: { namespace: "ns", name: "old" },
      resyncMs: 20,
    });
    const ended = source.run(abort.signal);
    const times = (name: string): number => asked.filter((path) => path.endsWith(`/${name}`)).length;
    await until(() => times("old") >= 3);
    t.equal(certificate.current, undefined, "another program filled it");
    old = ofOld;
    await until(() => certificate.current?.certPem === second.certPem);
    own = secretWith(first, "9");
    await until(() => certificate.current?.certPem === first.certPem);
    const before = times("old");
    own = { metadata: { ...ref, resourceVersion: "10" } };
    await until(() => times("tls") >= asked.length / 2 && times("tls") > before + 10);
    t.equal(times("old"), before, "not even where the Secret is emptied");
    t.equal(certificate.current?.certPem, first.certPem);
    abort.abort();
    await ended;
  },
);
