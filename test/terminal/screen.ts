/** Text in one style. */
export interface Span {
  readonly text: string;
  /** Parameters of SGR, such as `1` for bold, in the order in which they were set. */
  readonly style: string;
}

interface Cell {
  readonly character: string;
  readonly style: string;
}

const ESCAPE = "\u001B";
/** A command that begins with `ESC [`, or a character. */
const PARTS = new RegExp(`${ESCAPE}\\[[?\\d;]*[a-zA-Z]|[^${ESCAPE}]`, "gsu");
/** What ends each of bold and dim, colors, and all. */
const ENDED: Readonly<Record<string, RegExp>> = { "22": /^[12]$/, "39": /^3\d|^9\d/, "0": /./, "": /./ };

/** What a terminal shows after some bytes: it knows what log-update and util.styleText() send. */
export class Screen {
  readonly #columns: number;
  readonly #lines: Cell[][] = [[]];
  #row = 0;
  #column = 0;
  #style: readonly string[] = [];
  /** Whether a line was wider than the screen. */
  hasWrapped = false;

  constructor(columns: number) {
    this.#columns = columns;
  }

  /** The lines without their styles, and without spaces at their ends. */
  get text(): string {
    return this.#lines
      .map((line) =>
        line
          .map(({ character }) => character)
          .join("")
          .trimEnd(),
      )
      .join("\n");
  }

  /** The lines with their styles. */
  get lines(): readonly (readonly Span[])[] {
    return this.#lines.map((line) => {
      const spans: Span[] = [];
      for (const { character, style } of line) {
        const last = spans.at(-1);
        if (last?.style === style) spans.splice(-1, 1, { text: last.text + character, style });
        else spans.push({ text: character, style });
      }
      return spans;
    });
  }

  write(text: string): void {
    for (const [part] of text.matchAll(PARTS)) this.#take(part);
  }

  #take(part: string): void {
    if (part.length > 2) this.#command(part.at(-1) ?? "", part.slice(2, -1));
    else if (part === "\n") this.#newLine();
    else if (part === "\r") this.#column = 0;
    else this.#put(part);
  }

  #command(command: string, parameters: string): void {
    const count = parameters === "" ? 1 : Number(parameters);
    if (command === "A") this.#row = Math.max(0, this.#row - count);
    else if (command === "G") this.#column = count - 1;
    else if (command === "K") this.#lines[this.#row] = parameters === "2" ? [] : this.#line.slice(0, this.#column);
    else if (command === "J") this.#lines.splice(this.#row + 1);
    else if (command === "m") this.#setStyle(parameters);
  }

  #setStyle(parameter: string): void {
    const ended = ENDED[parameter];
    this.#style = ended === undefined ? [...this.#style, parameter] : this.#style.filter((one) => !ended.test(one));
  }

  get #line(): Cell[] {
    return this.#lines[this.#row] ?? [];
  }

  #newLine(): void {
    this.#row++;
    this.#column = 0;
    while (this.#lines.length <= this.#row) this.#lines.push([]);
  }

  #put(character: string): void {
    const line = this.#line;
    while (line.length < this.#column) line.push({ character: " ", style: "" });
    line[this.#column] = { character, style: this.#style.join(";") };
    this.#lines[this.#row] = line;
    this.#column++;
    this.hasWrapped ||= this.#column > this.#columns;
  }
}
