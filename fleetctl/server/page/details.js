// The fields and tables of an object that runs no work, as `fleetctl describe` has them. The server
// sends both: no kind has a table of its own here.

import { plain } from "./ansi.js";
import { make, replace, table } from "./dom.js";
import { age, pageOf } from "./format.js";

const SHORT_MAX = 40; // letters that a cell has in one line

export async function showDetails({ body, object }) {
  let named = new Set();

  function draw({ details, tables }) {
    named = new Set(tables.flatMap((one) => one.rows.flat()).filter((cell) => cell.object).map((cell) => keyOf(cell.object.kind, cell.object)));
    replace(body, fieldsOf(details), tables.map(tableOf), !details.length && !tables.length && make("p", { class: "quiet" }, "There is nothing more about it."));
  }

  draw(object);
  return {
    changed: draw,
    // Rows are about other objects, which change without this one.
    follows: ({ kind, metadata }) => named.has(keyOf(kind, metadata)),
  };
}

function keyOf(kind, { name, namespace }) {
  return `${kind}/${namespace ?? ""}/${name}`;
}

function fieldsOf(details) {
  return details.length > 0 && make("dl", {}, details.map(({ title, text }) => [make("dt", {}, plain(title)), make("dd", {}, plain(text))]));
}

function tableOf({ title, columns, rows, note }) {
  const shown = rows.map((row) => make("tr", {}, row.map(cellOf)));
  return make(
    "section",
    {},
    make("h2", {}, title),
    rows.length > 0 && table(columns, shown, title),
    note && make("p", { class: "quiet" }, note),
  );
}

function cellOf({ text, at, object }) {
  if (at) {
    return make("td", {}, make("time", { datetime: at }, age(at)));
  }
  const content = object ? make("a", { href: pageOf(object.plural, object) }, plain(text)) : plain(text);
  return make("td", { class: text.length > SHORT_MAX ? "wide" : null }, content);
}
