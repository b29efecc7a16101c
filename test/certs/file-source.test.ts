import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import tap, { type Test } from "tap";
import { FileSource } from "../../src/certs/file-source.ts";
import { issueSelfSigned, type SelfSigned } from "./self-signed.ts";
import { ServingCertificate } from "../../src/webhook/serving-certificate.ts";

const issue = (): Promise<SelfSigned> =>
  issueSelfSigned({ dnsNames: ["localhost"], ipAddresses: [], now: new Date(), lifetimeMs: 3_600_000 });
const [first, second] = await Promise.all([issue(), issue()]);

/** Runs a source on `folder` until the test ends. */
function start(t: Test, folder: string, pollMs: number) {
  const certificate = new ServingCertificate();
  const reloads: Record<string, number> = {};
  certificate.subscribe(({ result }) => (reloads[result] = (reloads[result] ?? 0) + 1));
  const log: string[] = [];
  const logger = pino({ level: "trace" }, { write: (line: string) => log.push(line) });
  const abort = new AbortController();
  const files = { certFile: join(folder, "tls.crt"), keyFile: join(folder, "tls.key") };
  const ended = new FileSource({ certificate, logger, ...files, pollMs }).run(abort.signal);
  t.teardown(async () => {
    abort.abort();
    await ended;
  });
  return { certificate, reloads, log };
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 1_000; tries++) {
    if (await condition()) return;
    await delay(10);
  }
  throw new Error("Cannot see in ten seconds what was waited for");
}

function write(folder: string, { certPem, keyPem }: SelfSigned): void {
  writeFileSync(join(folder, "tls.crt"), certPem);
  writeFileSync(join(folder, "tls.key"), keyPem);
}

await tap.test("FileSource waits for files that are not there yet, and for their folder", async (t) => {
  const folder = join(t.testdir(), "mounted");
  const { certificate, reloads, log } = start(t, folder, 20);
  await until(() => log.length > 0);
  t.equal(certificate.current, undefined);
  mkdirSync(folder);
  write(folder, first);
  await until(() => certificate.current !== undefined);
  t.same(reloads, { loaded: 1 });
  t.equal(log.length, 1, "said once, not at every look");
});

await tap.test("FileSource sees a swap of the kubelet's symlink by its event", async (t) => {
  const folder = t.testdir({ one: {}, two: {} });
  write(join(folder, "one"), first);
  write(join(folder, "two"), second);
  symlinkSync("one", join(folder, "..data"));
  for (const name of ["tls.crt", "tls.key"]) symlinkSync(join("..data", name), join(folder, name));
  const { certificate } = start(t, folder, 60_000);
  await until(() => certificate.current?.certPem === first.certPem);
  symlinkSync("two", join(folder, "..data_tmp"));
  renameSync(join(folder, "..data_tmp"), join(folder, "..data"));
  await until(() => certificate.current?.certPem === second.certPem);
});

await tap.test("FileSource sees a change without an event by its poll", async (t) => {
  // The folder that is watched is a symlink's target, which is replaced as a whole.
  const folder = t.testdir({ one: {}, two: {} });
  write(join(folder, "one"), first);
  write(join(folder, "two"), second);
  const link = join(folder, "link");
  symlinkSync("one", link);
  const { certificate } = start(t, link, 20);
  await until(() => certificate.current?.certPem === first.certPem);
  rmSync(link);
  symlinkSync("two", link);
  await until(() => certificate.current?.certPem === second.certPem);
});

await tap.test("FileSource does not offer a pair that is half changed", async (t) => {
  const folder = t.testdir({});
  write(folder, first);
  const { certificate, reloads } = start(t, folder, 20);
  await until(() => certificate.current !== undefined);
  writeFileSync(join(folder, "tls.crt"), second.certPem);
  await delay(100);
  writeFileSync(join(folder, "tls.key"), second.keyPem);
  await until(() => certificate.current?.certPem === second.certPem);
  t.same(reloads, { loaded: 2 }, "nothing was turned down");
});

await tap.test("FileSource keeps the last good pair, and turns a bad one that stays down once", async (t) => {
  const folder = t.testdir({});
  write(folder, first);
  const { certificate, reloads, log } = start(t, folder, 20);
  await until(() => certificate.current !== undefined);
  writeFileSync(join(folder, "tls.key"), second.keyPem);
  await until(() => reloads["rejected"] === 1);
  await delay(100);
  t.equal(certificate.current?.certPem, first.certPem);
  t.same(reloads, { loaded: 1, rejected: 1 });
  t.notMatch(log.join(""), second.keyPem.split("\n")[1] ?? "?", "nothing of a key is logged");
});
