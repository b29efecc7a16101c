/** A header's value in UTF-8, as API servers read it: undici takes one character for each byte. @throws {Error} if no header can carry it */
export function headerText(text: string, what: string): string {
  if (/[^\t\P{Cc}]/u.test(text)) {
    throw new Error(`${what} has a line break or another control character, which no request can carry`);
  }
  return Buffer.from(text).toString("latin1");
}
