import { EventEmitter, once } from "node:events";
import type { Server } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import Fastify from "fastify";
import forge from "node-forge";
import tap from "tap";
import { type OpenConnection, connectionToClose, limitConnections } from "../../src/serving/connection-limits.ts";
import { listenAt } from "../../src/serving/listen.ts";
import { purposeProblemOf } from "../../src/serving/certificates.ts";

const LIMITS = { total: 5, perAddress: 3 };

/** `a!` is a busy connection of `a`, and so on. */
function open(...names: readonly string[]): readonly OpenConnection[] {
  return names.map((name) => ({ address: name.charAt(0), isBusy: name.endsWith("!") }));
}

/** The index of the one to close. */
function closes(connections: readonly OpenConnection[], address: string): number | undefined {
  const found = connectionToClose(connections, address, LIMITS);
  return found === undefined ? undefined : connections.indexOf(found);
}

await tap.test("connectionToClose() closes none as long as there is room", (t) => {
  t.equal(closes([], "a"), undefined);
  t.equal(closes(open("a", "a"), "a"), undefined);
  t.equal(closes(open("a", "a", "a", "b"), "b"), undefined, "another address has as many as it may");
  t.end();
});

await tap.test("connectionToClose() closes one of the same address where that has as many as it may", (t) => {
  t.equal(closes(open("b", "a", "a", "a"), "a"), 1, "the one that is open for longest");
  t.equal(closes(open("a!", "a", "a"), "a"), 1, "of those that are idle");
  t.equal(closes(open("a!", "a!", "a!"), "a"), 0, "or of all");
  t.end();
});

await tap.test("connectionToClose() closes one of the address with the most where there are too many", (t) => {
  t.equal(closes(open("a", "b", "b", "b", "c"), "a"), 1);
  t.equal(closes(open("a", "b!", "b!", "b", "c"), "d"), 3);
  t.equal(closes(open("a", "a", "b", "b", "c"), "b"), 2, "its own where no other has more");
  t.end();
});

/** A connection as node:net tells of it; two from one port at once are a matter of microseconds on a real one. */
class Connection extends EventEmitter {
  readonly remoteAddress = "10.0.0.1";
  readonly remotePort: number;
  isDestroyed = false;

  constructor(remotePort: number) {
    super();
    this.remotePort = remotePort;
  }

  destroy(): void {
    this.isDestroyed = true;
  }
}

await tap.test("limitConnections() counts a connection that came before the one of the same port was closed", (t) => {
  const server = new EventEmitter();
  limitConnections(server as Server, { total: 10, perAddress: 1 });
  const [first, again, next] = [new Connection(7), new Connection(7), new Connection(8)];
  server.emit("connection", first);
  server.emit("connection", again);
  first.emit("close");
  t.equal(again.isDestroyed, false);
  server.emit("connection", next);
  t.equal(again.isDestroyed, true, "it was not forgotten");
  t.end();
});

const base = { message: "Listening", flags: "--webhook" };

await tap.test("listenAt() says which port is in use, and which flag sets another one", async (t) => {
  for (const host of ["127.0.0.1", "::1"]) {
    const other = createServer().listen(0, host);
    await once(other, "listening");
    t.teardown(() => other.close());
    const { port } = other.address() as AddressInfo;
    const app = Fastify();
    t.teardown(() => app.close());
    await t.rejects(listenAt(app, { ...base, host, port }), {
      code: "ListenFailed",
      message: /^Cannot listen on (127\.0\.0\.1|\[::1\]):\d+: another process uses this port; .* with --webhook-port$/,
    });
  }
});

await tap.test("listenAt() says that the machine has no such address", async (t) => {
  const app = Fastify();
  t.teardown(() => app.close());
  // An address for documentation (RFC 5737).
  await t.rejects(listenAt(app, { ...base, host: "192.0.2.1", port: 0 }), {
    code: "ListenFailed",
    message: "Cannot listen on 192.0.2.1:0: this machine has no such address; set one that it has with --webhook-host",
  });
});

const keys = forge.pki.rsa.generateKeyPair({ bits: 2048, e: 0x10001 });

/** A certificate with these extensions. Its common name counts for nothing. */
function certificate(...extensions: readonly object[]): string {
  const cert = forge.pki.createCertificate();
  cert.publicKey = keys.publicKey;
  cert.serialNumber = "01";
  cert.setSubject([{ name: "commonName", value: "webhook.ksvm.svc" }]);
  cert.setIssuer([{ name: "commonName", value: "ca" }]);
  cert.setExtensions([...extensions]);
  cert.sign(keys.privateKey, forge.md.sha256.create());
  return forge.pki.certificateToPem(cert);
}

const DNS = (value: string) => ({ type: 2, value });
const NAMES = (...altNames: readonly object[]) => ({ name: "subjectAltName", altNames });
const SERVER = { name: "extKeyUsage", serverAuth: true };

const good: readonly [name: string, pem: string, serverName: string][] = [
  ["its name", certificate(NAMES(DNS("webhook.ksvm.svc")), SERVER), "webhook.ksvm.svc"],
  ["one of its names", certificate(NAMES(DNS("a"), DNS("webhook.ksvm.svc")), SERVER), "webhook.ksvm.svc"],
  ["a wildcard", certificate(NAMES(DNS("*.ksvm.svc")), SERVER), "webhook.ksvm.svc"],
  ["its address", certificate(NAMES({ type: 7, ip: "10.0.0.1" }), SERVER), "10.0.0.1"],
  ["no usages, which means all", certificate(NAMES(DNS("webhook.ksvm.svc"))), "webhook.ksvm.svc"],
  [
    "any usage",
    certificate(NAMES(DNS("webhook.ksvm.svc")), { name: "extKeyUsage", "2.5.29.37.0": true }),
    "webhook.ksvm.svc",
  ],
];

for (const [name, pem, serverName] of good) {
  await tap.test(`purposeProblemOf() takes a certificate with ${name}`, async (t) => {
    t.equal(purposeProblemOf(pem, serverName), undefined);
  });
}

const bad: readonly [name: string, pem: string, problem: RegExp][] = [
  [
    "another name",
    certificate(NAMES(DNS("other.ksvm.svc")), SERVER),
    /not valid for webhook.ksvm.svc.*DNS:other.ksvm.svc$/,
  ],
  ["a common name alone", certificate(SERVER), /not valid for webhook.ksvm.svc.*its names: none$/],
  ["an address alone", certificate(NAMES({ type: 7, ip: "10.0.0.1" }), SERVER), /not valid for webhook.ksvm.svc/],
  [
    "the usage of clients",
    certificate(NAMES(DNS("webhook.ksvm.svc")), { name: "extKeyUsage", clientAuth: true }),
    /its extended key usage lacks serverAuth$/,
  ],
];

for (const [name, pem, problem] of bad) {
  await tap.test(`purposeProblemOf() refuses a certificate with ${name}`, async (t) => {
    t.match(purposeProblemOf(pem, "webhook.ksvm.svc"), problem);
  });
}
