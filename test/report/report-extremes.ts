import type { ReportFacts } from "../../src/report/report-facts.ts";
import {
  builtIn,
  crd,
  evidenceIn,
  factsOf,
  migrationOf,
  resultLine,
  staleCrd,
  verificationLine,
} from "./report-samples.ts";

/** Texts that would do harm where one of them were taken for HTML, for CSS, or for the end of an attribute. */
export const HOSTILE: readonly string[] = [
  "<script>alert(1)</script>",
  "</title></style></script><script>alert(1)</script>",
  `"><img src=x onerror=alert(1)>`,
  `' onmouseover='alert(1)`,
  "<!--",
  "-->",
  "]]>",
  "<base href=https://example.com/><form action=https://example.com/>",
  "<svg/onload=alert(1)>",
  "&lt;script&gt;",
  "javascript:alert(1)",
  "a\u0000b\u202Ec\u2028d\ud800e",
];

/** A cluster whose every text is one of those, also where no API server would take it. */
export function hostileFacts(): ReportFacts {
  const all = HOSTILE.join(" ");
  const failures = HOSTILE.map((text) => ({ namespace: text, name: text, reason: text }));
  const counts = { migrated: 1, skipped: 0, failed: failures.length };
  const named = HOSTILE.map((text) => ({
    ...staleCrd("x.example.com", 3),
    name: text,
    kind: text,
    storageVersion: text,
    storedVersions: [text],
    servedVersions: [text],
    removableVersions: [text],
    note: text,
    conversionProblem: text,
  }));
  const changed = HOSTILE.map((name) => ({ name, namespace: name, server: name }));
  const lines = HOSTILE.flatMap((text) => [
    resultLine(text, { outcome: "incomplete", failures, storedVersions: [text], encryption: text }),
    verificationLine(text, { changed, notShown: failures, storageVersion: text, watermark: text, encryption: text }),
    JSON.stringify({ time: "2026-01-02T09:50:00Z", resource: text, type: "error", code: text, message: text }),
  ]);
  return factsOf([...named, builtIn(all, { note: all }), crd("widgets.example.com", { kind: all })], {
    server: all,
    serverVersion: all,
    names: HOSTILE,
    unavailable: [{ groupVersion: all, reason: all }],
    evidence: evidenceIn(...lines),
    status: {
      controller: { state: "alive", lease: all, holder: all, renewed: all },
      migrations: HOSTILE.map((text) =>
        migrationOf(text, {
          name: text,
          state: "Failed",
          message: text,
          failures,
          counts,
          progress: text,
          created: text,
          ended: text,
        }),
      ),
      runs: HOSTILE.map((text) => ({ resource: text, state: "silent", lease: text, holder: text, renewed: text })),
      freezes: HOSTILE.map((text) => ({ crd: text, owner: text, lease: text, since: text, migration: text })),
      storage: [{ resource: all, storedVersions: [all], servers: [{ server: all, version: all }] }],
      suspended: { since: all, by: all },
      leftOut: [{ name: all, reason: all }],
      unknown: [all],
    },
  });
}

/** A large cluster: every tenth CRD is to be migrated, and every hundredth could not be. */
export function manyCrds(count: number): ReportFacts {
  const entries = Array.from({ length: count }, (_, index) => {
    const name = `resources${index}.group${index % 40}.example.com`;
    return index % 10 === 0 ? staleCrd(name, index * 7) : crd(name, { objects: index });
  });
  const failed = entries.filter((_, index) => index % 100 === 0);
  const failures = Array.from({ length: 100 }, (_, index) => ({
    namespace: `team-${index}`,
    name: `object-${index}`,
    reason: 'admission webhook "validate.example.com" denied the request: spec.replicas is required',
  }));
  const counts = { migrated: 0, skipped: 0, failed: 100 };
  return factsOf(entries, {
    status: { migrations: failed.map(({ name }) => migrationOf(name, { state: "Failed", failures, counts })) },
    evidence: evidenceIn(...entries.map(({ name }) => verificationLine(name))),
  });
}
