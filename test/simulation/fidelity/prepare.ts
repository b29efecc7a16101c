import { storageVersionHashOf } from "../../../src/api/crd.ts";
import { type CrdShape, GROUP } from "../../integration/crd-fixture.ts";
import type { Play } from "./play.ts";
import { get, isEstablished, post, Subject } from "./script-requests.ts";

/** Longer than a handler lags behind discovery. */
export const HANDLER_LAG_MS = 1_000;

/** Creates a CRD and waits until its objects can be written in every served version. */
export async function createSubject(play: Play, word: string, shape: CrdShape): Promise<Subject> {
  const subject = new Subject(word);
  await play.line(`create the CRD of ${subject.plural}`, subject.create(shape), {
    pick: () => "as in the scenario of a CRD",
  });
  await play.wait("the CRD is established", get(subject.path), isEstablished);
  await served(play, subject, shape);
  return subject;
}

/** Changes the storage version and waits until writes land in it. */
export async function changeStorage(play: Play, subject: Subject, shape: CrdShape): Promise<void> {
  const title = `${shape.storage} becomes the storage version of ${subject.plural}`;
  await play.line(title, subject.setVersions(shape), { pick: ({ status }) => status.storedVersions as unknown });
  await served(play, subject, shape);
}

/** Waits until the API servers show a shape, and act by it. */
export async function served(play: Play, subject: Subject, shape: CrdShape): Promise<void> {
  const { storage, unserved = [], versions = ["v1alpha1", "v1"] } = shape;
  const hash = storageVersionHashOf(GROUP, storage, subject.kind);
  for (const version of versions) {
    const isServed = !unserved.includes(version);
    await play.wait(
      `discovery shows ${version} of ${subject.plural}`,
      get(`/apis/${GROUP}/${version}`),
      ({ body, status }) => {
        const listed = status === 200 ? (body.resources ?? []) : [];
        const found = listed.find((one: { readonly name: string }) => one.name === subject.plural);
        return isServed ? found?.storageVersionHash === hash : found === undefined;
      },
    );
    if (isServed) {
      await play.wait(
        `${version} is served`,
        get(subject.all(version), { query: { limit: 1 } }),
        ({ status }) => status === 200,
      );
    }
  }
  await play.world.pause(HANDLER_LAG_MS);
}

/** Creates objects, and compares only that it can be done. */
export async function createObjects(
  play: Play,
  subject: Subject,
  version: string,
  names: readonly string[],
): Promise<void> {
  for (const name of names) {
    const title = `create ${name} in ${version}`;
    await play.line(title, post(subject.own(version), subject.object(version, name)), {
      pick: ({ metadata }) => metadata as unknown,
    });
  }
}
