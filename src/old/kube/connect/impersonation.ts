import type { KubeUser } from "./cluster-config.ts";
import { headerText } from "./header-text.ts";

/** https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation */
export function impersonation(user: KubeUser): Record<string, string | string[]> {
  const { impersonateExtra = {}, impersonateGroups = [], impersonateUid, impersonateUser } = user;
  if (impersonateUser === undefined || impersonateUser === "") {
    return {};
  }
  const extra = Object.entries(impersonateExtra).map(([key, values]) => [
    `impersonate-extra-${headerKey(key)}`,
    values.map((value) => headerText(value, "an extra field of what is to be impersonated")),
  ]);
  return {
    "impersonate-user": impersonatedText(impersonateUser),
    ...(impersonateUid === undefined || impersonateUid === ""
      ? {}
      : { "impersonate-uid": impersonatedText(impersonateUid) }),
    ...(impersonateGroups.length === 0 ? {} : { "impersonate-group": impersonateGroups.map(impersonatedText) }),
    ...Object.fromEntries(extra),
  };
}

/** @throws {Error} also for a blank name: a header loses its spaces, and an empty one impersonates nobody. */
function impersonatedText(text: string): string {
  if (text.trim() === "") {
    throw new Error("the name of what is to be impersonated is blank");
  }
  return headerText(text, "what is to be impersonated");
}

/** The key of an extra field as a part of a header's name: what may not stand there, and %, is percent-encoded. */
function headerKey(key: string): string {
  return [...Buffer.from(key)].map(headerByte).join("");
}

function headerByte(byte: number): string {
  const character = String.fromCharCode(byte);
  const isLegal = /[!#$&'*+.^_`|~0-9A-Za-z-]/.test(character);
  return isLegal ? character : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
}
