import { Document, visit } from "yaml";
import { printable } from "./printable.ts";

/**
 * A document of YAML as it may be written to a terminal, without a line break at its end. A text with a character that
 * is escaped stands in double quotes, where the escape means that character.
 */
export function yamlText(value: object): string {
  const document = new Document(value);
  visit(document, {
    Scalar: (_key, node) => {
      if (typeof node.value === "string" && printable(node.value) !== node.value) node.type = "QUOTE_DOUBLE";
    },
  });
  return printable(document.toString()).trimEnd();
}
