import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, credentials, loadPackageDefinition, type ServiceClientConstructor } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import t, { type Test } from "tap";
import { kmsKeyIdOf, typeMetaOf } from "../control-plane/stored-value.ts";
import { KmsPlugin } from "./kms-plugin.ts";

const SECRET = Buffer.from("the seed of an API server");
/** Field 1 of an envelope, of 200 bytes: its length takes two bytes. */
const DATA = Buffer.concat([Buffer.from([0x0a, 0xc8, 0x01]), Buffer.alloc(200, "x")]);
const ENVELOPE = Buffer.concat([DATA, Buffer.from([0x12, 4]), Buffer.from("key1"), Buffer.from([0x1a, 1, 0])]);

type Call = (method: "Status" | "Encrypt" | "Decrypt", request: object) => Promise<Record<string, unknown>>;

/** A plugin, and an API server's way to it. */
async function plugin(t: Test): Promise<{ readonly plugin: KmsPlugin; readonly call: Call }> {
  const dir = mkdtempSync(join(tmpdir(), "ksvm-kms-"));
  const socket = join(dir, "kms.sock");
  const started = await KmsPlugin.start(socket, "key1");
  const loaded = loadPackageDefinition(loadSync(join(import.meta.dirname, "kms-v2.proto")));
  const { KeyManagementService } = loaded["v2"] as unknown as { KeyManagementService: ServiceClientConstructor };
  const client = new KeyManagementService(`unix:${socket}`, credentials.createInsecure());
  t.teardown(() => {
    client.close();
    started.stop();
    rmSync(dir, { recursive: true });
  });
  const call: Call = (method, request) =>
    new Promise((resolve, reject) => {
      const send = (client as Client & Record<string, (...args: unknown[]) => void>)[method];
      send?.call(client, request, (error: Error | null, answer: Record<string, unknown>) =>
        error === null ? resolve(answer) : reject(error),
      );
    });
  return { plugin: started, call };
}

await t.test("KmsPlugin encrypts with its newest key, and decrypts with all that were not removed", async (t) => {
  const { plugin: kms, call } = await plugin(t);
  t.match(await call("Status", {}), { version: "v2", healthz: "ok", keyId: "key1" });
  const old = await call("Encrypt", { plaintext: SECRET, uid: "1" });
  t.equal(old["keyId"], "key1");
  t.notOk(String(old["ciphertext"]).includes(String(SECRET)), "it is encrypted");
  kms.keys.rotate("key2");
  t.match(await call("Status", {}), { keyId: "key2" });
  const renewed = await call("Encrypt", { plaintext: SECRET, uid: "2" });
  t.equal(renewed["keyId"], "key2");
  for (const one of [old, renewed]) {
    t.same(await call("Decrypt", { ...one, uid: "3" }), { plaintext: SECRET });
  }
  kms.keys.remove("key1");
  await t.rejects(call("Decrypt", { ...old, uid: "4" }), { message: /key "key1" is not known/ });
  t.same(await call("Decrypt", { ...renewed, uid: "5" }), { plaintext: SECRET });
  await t.rejects(call("Decrypt", { ...old, keyId: "key2", uid: "6" }), "nor does another key open it");
  t.equal(kms.statusCalls, 2);
  t.equal(kms.decryptions, 5);
});

await t.test("kmsKeyIdOf() reads the key id of an envelope behind data of any length", async (t) => {
  t.equal(kmsKeyIdOf(ENVELOPE), "key1");
  const stored = Buffer.concat([Buffer.from("k8s:enc:kms:v2:vault:"), ENVELOPE]);
  t.equal(typeMetaOf(stored).encryptedWith, "k8s:enc:kms:v2:vault:key1");
  t.throws(() => kmsKeyIdOf(DATA), /Cannot find a key id/);
});
