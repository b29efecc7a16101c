/**
 * The field selector for the object of one name. Names of most kinds need no escape; those of Roles and their bindings may hold each of these.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/fields/selector.go
 */
export function selectorOfName(name: string): string {
  return `metadata.name=${name.replaceAll(/[\\,=]/g, (special) => `\\${special}`)}`;
}
