import { SYSTEM_NAMESPACE } from "../../api/migration.ts";
import type { ReencryptionWish } from "../../api/reencryption.ts";
import { initialize, type InitResult } from "../../initializer/initialize.ts";
import { KsvmError } from "../../errors.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { documentOf } from "../render/document.ts";
import { renderTextOr } from "../render/render-result.ts";
import { EXIT } from "../render/exit-codes.ts";
import { choice, optional, toggle, value } from "../flags/kinds.ts";
import { parseDigest } from "../flags/reencrypt-flags.ts";
import { NO_OPERANDS } from "../flags/operands.ts";
import { anyText } from "../flags/parsers.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine, printable } from "../render/printable.ts";
import { confirm, YES_FLAG } from "../shared/confirm.ts";

/** `ksvm init`: the one-time job of the initializer. */
export const INIT_COMMAND = defineCommand({
  path: "init",
  description: "Install the CRDs of migration.k8s.io and create one migration for each resource of the cluster.",
  examples: ["ksvm init --dry-run", "ksvm init --replace"],
  operands: NO_OPERANDS,
  flags: {
    force: toggle({
      help:
        "have the controller write every object of every served resource again, with evidence that all API servers encrypt " +
        "alike, as after a rotation of the encryption key",
    }),
    "expect-config": optional(parseDigest, {
      placeholder: "sha256",
      help:
        "with --force: digest of the new EncryptionConfiguration, as sha256sum prints it; each migration waits until every API " +
        "server uses that one. If not set, any configuration that all of them use counts, also an old one",
    }),
    replace: toggle({ help: "remove another active migrator or trigger instead of failing" }),
    "dry-run": toggle({ help: "show what would be created and deleted; change nothing" }),
    ...YES_FLAG,
    namespace: value(anyText, {
      placeholder: "namespace",
      default: SYSTEM_NAMESPACE,
      help: "namespace of the controller",
    }),
    output: choice(["text", "json", "yaml"], {
      short: "o",
      placeholder: "format",
      default: "text",
      help: "output format",
    }),
  },
  async run(io, flags) {
    const { signal, stdout } = io;
    const { expectConfig: expectedConfig, force } = flags;
    if (expectedConfig !== undefined && !force) {
      throw new KsvmError(
        "Usage",
        "Cannot expect a configuration of migrations that do not re-encrypt: pass --force as well",
      );
    }
    const reencryption = force ? wishFor(expectedConfig) : undefined;
    const connection = await connect(flags, signal);
    try {
      const { kube } = connection;
      const options = { ...flags, reencryption };
      if (!flags.yes && !flags.dryRun) {
        const preview = await initialize(kube, { ...options, dryRun: true }, signal);
        if (!(await mayDelete(io, preview))) {
          stdout.write("nothing was changed\n");
          return EXIT.failed;
        }
      }
      const result = await initialize(kube, options, signal);
      const text = renderTextOr(documentOf("Initialization", result), flags.output, () =>
        describeInit(result).join("\n"),
      );
      stdout.write(`${printable(text)}\n`);
      // Otherwise a Job would report success, and nothing would run it again.
      return result.unread.length === 0 ? EXIT.done : EXIT.incomplete;
    } finally {
      await connection.close();
    }
  },
});

/** A first init deletes nothing, and asks nothing. */
async function mayDelete(io: CliIo, { deleted, replaced }: InitResult): Promise<boolean> {
  const what = [
    ...replaced.map(({ name, namespace }) => `Deployment "${namespace}/${name}"`),
    ...(deleted === 0 ? [] : [`${deleted} migrations of an earlier init, in whose place new ones are created`]),
  ].join(", ");
  return what === "" || (await confirm(io, oneLine(`This deletes ${what}. Continue?`), oneLine(`delete ${what},`)));
}

function wishFor(expectedConfig: string | undefined): ReencryptionWish {
  return expectedConfig === undefined ? {} : { expectedConfig };
}

/** The result in plain words. Subresources are only counted: there are more of them than of everything else. */
function describeInit(done: InitResult): readonly string[] {
  const { isDryRun = false, replaced, crds, deleted, migrations, skipped, unread } = done;
  if (isDryRun) {
    return describePreview(done);
  }
  return [
    ...replaced.map(({ namespace, name }) => `removed Deployment "${namespace}/${name}"`),
    ...crds.map(({ name, result }) => `${result} CustomResourceDefinition "${name}"`),
    ...(deleted === 0 ? [] : [`deleted ${deleted} migrations of an earlier init`]),
    ...skipped
      .filter((entry) => !isSubresource(entry))
      .map(({ resource, reason }) => `left out "${resource}": ${reason}`),
    `left out ${skipped.filter(isSubresource).length} subresources`,
    ...migrations.map(
      ({ name, resource, version }) =>
        `created migration "${name}" of "${resource}"${version === "" ? "" : ` (${version})`}`,
    ),
    `created ${migrations.length} migrations; to see their progress: ksvm status -w`,
    ...unread.map(({ resource, reason }) => `not done: "${resource}": ${reason}; run ksvm init again`),
  ];
}

function describePreview({ replaced, crds, deleted, migrations, skipped, unread }: InitResult): readonly string[] {
  return [
    ...replaced.map(({ namespace, name }) => `would remove Deployment "${namespace}/${name}"`),
    ...crds.map(({ name, result }) => `CustomResourceDefinition "${name}" would be ${result}`),
    ...(deleted === 0 ? [] : [`would delete ${deleted} migrations of an earlier init`]),
    ...skipped
      .filter((entry) => !isSubresource(entry))
      .map(({ resource, reason }) => `would leave out "${resource}": ${reason}`),
    ...migrations.map(({ resource, version }) => `would migrate "${resource}"${version === "" ? "" : ` (${version})`}`),
    `would create ${migrations.length} migrations; nothing was changed`,
    ...unread.map(({ resource, reason }) => `cannot tell: "${resource}": ${reason}`),
  ];
}

function isSubresource({ resource }: InitResult["skipped"][number]): boolean {
  return resource.includes("/");
}
