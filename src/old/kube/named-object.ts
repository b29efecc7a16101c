/** An object of a known resource. */
export interface NamedObject {
  readonly namespace?: string;
  readonly name: string;
}

/** The name of an object alone, as a report has it. */
export function namedObjectOf({ namespace, name }: NamedObject): NamedObject {
  return namespace === undefined ? { name } : { namespace, name };
}

/** `namespace/name`, or the name of a cluster-scoped object. */
export function objectNameOf({ namespace, name }: NamedObject): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}
