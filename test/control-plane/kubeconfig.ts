/** Someone who may call the apiserver, known by a static token. */
export interface User {
  readonly name: string;
  readonly groups?: readonly string[];
  readonly token: string;
}

/** The text of a kubeconfig for one user of one apiserver (JSON, which is YAML too). */
export function kubeconfigText(server: string, ca: string, user: User): string {
  const name = "ksvm-test";
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name, cluster: { server, "certificate-authority-data": Buffer.from(ca).toString("base64") } }],
    users: [{ name: user.name, user: { token: user.token } }],
    contexts: [{ name, context: { cluster: name, user: user.name } }],
    "current-context": name,
  };
  return `${JSON.stringify(config, undefined, 2)}\n`;
}

/** The text of the file that --token-auth-file reads: token, name, uid, quoted groups. */
export function tokenFileText(users: Iterable<User>): string {
  const lines = [...users].map(
    ({ token, name, groups = [] }) => `${token},"${name}","${name}","${groups.join(",")}"\n`,
  );
  return lines.join("");
}
