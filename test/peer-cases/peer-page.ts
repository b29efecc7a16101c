import type { PeerCase, PeerCases, PinnedSource } from "./peer-case.ts";

/** The text of docs/peer-cases.md. */
export function peerPage(peers: readonly PeerCases[]): string {
  return `# Cases of other migrators

<!-- \`node test/peer-cases/write-page.ts\` writes this file from the tables in test/peer-cases. Change those instead. -->

Every case that other storage version migrators test themselves by, in our words: what is given, what the peer does by its source, and what ksvm does. The
tests that are named run each case against ksvm on a real API server and read etcd. The words in bold are in their titles. The suites that upstream's own
programs run are in [conformance](conformance.md).

In these tables the versions of the peer stand for v1alpha1 and v1 of the tests. A migration of the in-tree controller is a StorageVersionMigration of
\`migration.k8s.io\` for ksvm, which \`ksvm controller\` carries out.

${peers.map(peerSection).join("\n\n")}
`;
}

function peerSection({ peer, cases }: PeerCases): string {
  const { name, project, version, sources, runBy } = peer;
  return `## ${name}

${project}, ${version}. Run by \`${runBy}\`.

${sources.map(sourceLine).join("\n")}

| case | upstream's tests | ${name} | ksvm |
| --- | --- | --- | --- |
${cases.map(caseRow).join("\n")}`;
}

function sourceLine({ path, sha256 }: PinnedSource): string {
  return `- \`${path}\`, SHA-256 ${sha256}`;
}

function caseRow({ id, tests, situation, peerDoes, ksvmDoes, notApplicable }: PeerCase): string {
  const names = tests.map((test) => `\`${test}\``).join("<br>");
  const ksvm = notApplicable === undefined ? ksvmDoes : `Not applicable: ${notApplicable}. ${ksvmDoes}`;
  return `| **${id}**: ${situation} | ${names} | ${peerDoes} | ${ksvm} |`;
}
