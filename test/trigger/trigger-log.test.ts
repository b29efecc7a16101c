import pino from "pino";
import tap from "tap";
import type { Survey } from "../../src/trigger/survey.ts";
import { SurveyLog } from "../../src/trigger/trigger-log.ts";

const NOTHING: Survey = { observed: [], leftOut: [], unavailable: [] };
const SUBRESOURCE = { name: "pods/log", reason: "a subresource", isShared: false, isOptedOut: false };
const RESOURCE = { name: "events.events.k8s.io", reason: "the same objects", isShared: true, isOptedOut: false };
const VERSION = { group: "g", version: "v1", server: "https://a", reason: "503", isMissing: false };

await tap.test("SurveyLog says what is left out, once, and when that is over; and nothing of nothing", (t) => {
  const lines: unknown[] = [];
  const write = (line: string): void => void lines.push(JSON.parse(line));
  const log = new SurveyLog(pino({ level: "info", base: null, timestamp: false }, { write }));
  const told = (survey: Partial<Survey>): readonly unknown[] => {
    log.write({ ...NOTHING, ...survey });
    return lines.splice(0);
  };
  t.same(told({ leftOut: [SUBRESOURCE] }), [], "subresources are no loss");
  const leftOut = [SUBRESOURCE, RESOURCE];
  const resources = [{ resource: RESOURCE.name, reason: RESOURCE.reason }];
  t.same(told({ leftOut }), [{ level: 30, resources, subresources: 1, msg: "Left resources out" }]);
  const versions = [{ groupVersion: "g/v1", server: "https://a", reason: "503" }];
  t.match(told({ leftOut, unavailable: [VERSION] }), [
    { level: 40, versions, msg: /^API servers do not show every group/ },
  ]);
  t.same(told({ leftOut, unavailable: [VERSION] }), []);
  t.same(told({ leftOut }), [{ level: 30, msg: "API servers show every group again" }]);
  t.match(told({}), [{ level: 30, resources: [], msg: "No resource is left out any more" }]);
  t.same(told({}), []);
  t.end();
});
