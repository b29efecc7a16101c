import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";

import { makeKeyPair, makeServingCertificate } from "./certificates.ts";
import { filesIn } from "./flags.ts";
import { tokenFileText, type User } from "./kubeconfig.ts";

/** The user that the kube-controller-manager acts as. */
export const CONTROLLER_MANAGER = "system:kube-controller-manager";

/**
 * Writes keys, certificates and tokens that the processes of one control plane share.
 * @param furtherUsers beside "admin" and the controller manager, who may do everything
 * @returns the CA as PEM text, and all users
 */
export async function prepareFiles(
  dir: string,
  furtherUsers: readonly Omit<User, "token">[],
): Promise<{ ca: string; users: readonly User[] }> {
  const [certificate, serviceAccount] = await Promise.all([makeServingCertificate(), makeKeyPair()]);
  const masters = ["system:masters"];
  const accounts = [
    { name: "admin", groups: masters },
    { name: CONTROLLER_MANAGER, groups: masters },
  ];
  const users = [...accounts, ...furtherUsers].map((user) => ({
    ...user,
    token: randomBytes(16).toString("hex"),
  }));
  const files = filesIn(dir);
  const secret = { mode: 0o600 };
  writeFileSync(files.tokens, tokenFileText(users), secret);
  writeFileSync(files.ca, certificate.ca);
  writeFileSync(files.certificate, certificate.certificate);
  writeFileSync(files.privateKey, certificate.privateKey, secret);
  writeFileSync(files.serviceAccountKey, serviceAccount.privateKey, secret);
  writeFileSync(files.serviceAccountPublicKey, serviceAccount.publicKey);
  return { ca: certificate.ca, users };
}
