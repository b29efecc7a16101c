import { Readable } from "node:stream";
import tap from "tap";
import { REENCRYPT_ANNOTATION } from "../../src/api/names.ts";
import { replaceEarlier } from "../../src/initializer/earlier-migrations.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";

interface Given {
  readonly by?: string;
  readonly suspend?: boolean;
  readonly ended?: "Succeeded" | "Failed";
  readonly reencrypt?: string;
  readonly isDeleted?: boolean;
}

function migrationOf(resource: string, { by = "init", suspend = false, ended, reencrypt, isDeleted = false }: Given) {
  const annotations = reencrypt === undefined ? {} : { [REENCRYPT_ANNOTATION]: reencrypt };
  return {
    metadata: {
      name: `${resource}-1`,
      uid: resource,
      resourceVersion: "1",
      labels: { "ksvm.sigs.k8s.io/created-by": by },
      annotations,
      ...(isDeleted ? { deletionTimestamp: "2026-01-01T00:00:00Z" } : {}),
    },
    spec: { resource: { version: "v1", resource }, suspend },
    status: { conditions: ended === undefined ? [] : [{ type: ended, status: "True" }] },
  };
}

/** A stand-in: what is left in place is decided by what one list shows. */
async function replaced(given: Readonly<Record<string, Given>>, reencryption?: object) {
  const items = Object.entries(given).map(([resource, of]) => migrationOf(resource, of));
  const deleted: string[] = [];
  const client = {
    transport: {
      read: async (_: object, parse: (body: Readable) => Promise<unknown>) => {
        const list = { kind: "List", metadata: { resourceVersion: "1" }, items };
        return { body: await parse(Readable.from([Buffer.from(JSON.stringify(list))])) };
      },
    },
    delete: async (_: object, { name }: { name: string }) => void deleted.push(name.slice(0, -2)),
  } as unknown as ApiClient;
  const clock = new FakeClock();
  const context = { client, clock, retrier: new Retrier({ clock, random: () => 0.5 }), signal: AbortSignal.any([]) };
  const renewed = new Set(Object.keys(given).filter((name) => name !== "gone"));
  const { left } = await replaceEarlier(context, { renewed, unknownGroups: new Set(), reencryption });
  return { deleted, left: Object.fromEntries(left) };
}

const GIVEN: Readonly<Record<string, Given>> = {
  plain: {},
  wanted: { reencrypt: "true" },
  unreadable: { reencrypt: "yes" },
  done: { reencrypt: "true", ended: "Succeeded" },
  failed: { reencrypt: "true", ended: "Failed" },
  theirs: { reencrypt: "true", by: "user" },
  stopped: { suspend: true },
  held: { suspend: true, reencrypt: "true" },
  gone: { reencrypt: "true" },
};

await tap.test(
  "initialize() leaves a migration that re-encrypts in place, unless it is to re-encrypt again",
  async (t) => {
    const plain = await replaced(GIVEN);
    t.same(plain.deleted, ["plain", "done", "gone"]);
    t.same(plain.left, {
      wanted: "its migration re-encrypts it",
      unreadable: "its migration re-encrypts it",
      failed: "its re-encryption failed, which init --force repeats",
      stopped: "its migration is suspended",
      held: "its migration is suspended",
    });
    const forced = await replaced(GIVEN, {});
    t.same(
      forced.deleted,
      ["plain", "wanted", "unreadable", "done", "failed", "gone"],
      "what a user created or stopped stays",
    );
    t.same(
      forced.left,
      { held: "its migration is suspended" },
      "one that re-encrypts waits behind one that was stopped",
    );
  },
);

await tap.test("initialize() takes a migration that was deleted for gone, whatever finalizer keeps it", async (t) => {
  const given = { stopped: { suspend: true, isDeleted: true }, failed: { reencrypt: "true", isDeleted: true } };
  t.same(await replaced(given), { deleted: [], left: {} });
});
