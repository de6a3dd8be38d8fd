// The graph of objects: what comes before what, from left to right, and the same as a table. The
// server chooses the objects and their positions; all of them are links, and arrow keys follow links.

import { plain } from "./ansi.js";
import { get } from "./api.js";
import { draw, make, replace, table } from "./dom.js";
import { pageOf, phaseClass, phaseMark } from "./format.js";
import { kindsByName } from "./kinds.js";
import { go, namespace } from "./navigation.js";
import { refresher } from "./refreshing.js";

// In pixels.
const WIDTH = 212;
const HEIGHT = 40;
const STEP_X = 300;
const STEP_Y = 54;
const MARGIN = 16; // a lane is above the first row, too
const CHARS = 25; // of a name in a box
const LISTED = 12; // of what comes after an object; each of these names it, too
const LABELLED = 40; // of more links than this, the texts would cover each other
const MISSING = "Missing";
const RELATIONS = [
  ["after", "comes after"],
  ["uses", "uses"],
  ["keeps", "made by"],
];
const PHASES = [
  ["", "any status"],
  ["Running", "running"],
  ["Failed,Degraded,Exceeded", "failed"],
  ["Pending,Queued,Suspended", "waiting"],
  ["Succeeded,Ready", "good"],
];
// Beside the colour, for who does not see it: paths in a square of 10.
const MARKS = {
  good: "M1 5.5L4 8.5L9 1.5",
  bad: "M1.5 1.5L8.5 8.5M8.5 1.5L1.5 8.5",
  busy: "M2.5 1L8.5 5L2.5 9Z",
  waits: "M5 1a4 4 0 1 0 .01 0Z",
  off: "M3 1V9M7 1V9",
};

export function graphOf(key) {
  return `/graph?${new URLSearchParams({ of: key.replace(/ -n default$/, "") })}`;
}

export async function showGraph({ main, signal, query }) {
  const kinds = await kindsByName();
  const asked = Object.fromEntries(["of", "kind", "phase", "filter"].map((name) => [name, query.get(name) ?? ""]));
  const notes = make("div", { "aria-live": "polite" });
  const drawing = make("div", {});
  let last = "";

  function change(name, value) {
    const found = Object.entries({ ...asked, [name]: value }).filter(([, it]) => it);
    go(`/graph${found.length ? `?${new URLSearchParams(found)}` : ""}`);
  }

  async function refresh() {
    const found = await get("graph", { ...asked, namespace: asked.of ? "" : namespace() }, signal);
    const text = JSON.stringify(found);
    if (text === last) {
      return; // no box moves under the hand of who points at it
    }
    last = text;
    const focus = document.activeElement?.dataset?.key;
    replace(notes, found.metadata.notes.map((note) => make("p", { class: "quiet" }, note)));
    const { objects, links } = found;
    if (!objects.length) {
      replace(drawing, make("p", { class: "quiet" }, "No object is linked to another one."));
      return;
    }
    const before = drawing.querySelector(".graph");
    const [left, top] = [before?.scrollLeft ?? 0, before?.scrollTop ?? 0];
    replace(drawing, legend(), drawGraph(objects, links), tableOf(objects, links));
    drawing.querySelector(".graph").scrollTo(left, top);
    if (focus) {
      drawing.querySelector(`a[data-key="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
    }
  }

  const of = asked.of && [
    make("p", {}, "Only ", make("b", {}, asked.of), ", all that comes before it, and all that comes after. ", make("a", { href: "/graph" }, "Show all objects")),
  ];
  replace(
    main,
    make("h1", {}, "Graph"),
    of || filterBar(asked, kinds, change),
    notes,
    drawing,
  );
  await refresh();
  return { changed: refresher(refresh, signal) };
}

function filterBar(asked, kinds, change) {
  const choice = (name, options) =>
    make(
      "select",
      { id: name, onchange: (event) => change(name, event.target.value) },
      options.map(([value, title]) => make("option", { value, selected: value === asked[name] }, title)),
    );
  const names = Object.values(kinds).map((one) => [one.plural, one.plural]);
  const filter = make("input", { id: "filter", size: 24, placeholder: "name, or team=rlm", onchange: () => change("filter", filter.value.trim()) });
  filter.value = asked.filter;
  return make(
    "div",
    { class: "bar" },
    make("label", { for: "kind" }, "Kind"),
    choice("kind", [["", "all kinds"], ...names]),
    make("label", { for: "phase" }, "Status"),
    choice("phase", PHASES),
    make("label", { for: "filter" }, "Filter"),
    filter,
  );
}

function legend() {
  const line = (relation) =>
    draw("svg", { width: 34, height: 10, "aria-hidden": "true" }, draw("path", { class: `link ${relation}`, d: "M0 5H34" }));
  return make("div", { class: "legend" }, RELATIONS.map(([relation, title]) => make("span", {}, line(relation), ` ${title}`)));
}

function drawGraph(objects, links) {
  const width = 2 * MARGIN + Math.max(...objects.map((one) => one.column)) * STEP_X + WIDTH;
  const height = 2 * MARGIN + Math.max(...objects.map((one) => one.row)) * STEP_Y + HEIGHT;
  const lines = links.map((link) => drawLink(link, objects, links.length <= LABELLED));
  const boxes = objects.map(drawBox);
  const light = (at) => lines.forEach((line, number) => line.classList.toggle("lit", links[number].tail === at || links[number].head === at));
  boxes.forEach((box, at) => {
    for (const event of ["focusin", "pointerenter"]) {
      box.addEventListener(event, () => light(at));
    }
    box.addEventListener("pointerleave", () => light(boxes.indexOf(document.activeElement)));
    box.addEventListener("keydown", (event) => {
      const to = nextOf(event.key, at, objects, links);
      if (to !== undefined) {
        event.preventDefault();
        boxes[to].focus();
        boxes[to].scrollIntoView({ block: "nearest", inline: "nearest" });
      }
    });
  });
  const head = draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, draw("path", { class: "arrow", d: "M0 0L8 4L0 8Z" }));
  return make(
    "div",
    { class: "scroll graph", tabindex: "0", role: "region", "aria-label": "Drawing; arrow keys lead along the links" },
    draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${objects.length} objects and ${links.length} links` }, draw("defs", {}, head), lines, boxes),
  );
}

function drawBox(one) {
  const x = MARGIN + one.column * STEP_X;
  const y = MARGIN + one.row * STEP_Y;
  const title = titleOf(one);
  const state = [one.phase, one.done].filter(Boolean).join(" ");
  const name = [...(one.name || "not yours to see")];
  // The end of a name tells it apart as well as its beginning.
  const cut = name.length > CHARS ? `${name.slice(0, 12).join("")}…${name.slice(-12).join("")}` : name.join("");
  const href = linkOf(one);
  const look = one.phase === MISSING ? "bad" : phaseClass(one.phase);
  const about = [title, state, plain(one.why)].filter(Boolean).join(", ");
  return draw(
    href ? "a" : "g",
    {
      class: `box ${look}`,
      transform: `translate(${x} ${y})`,
      href,
      "aria-label": href && about,
      "data-key": one.key || null,
    },
    draw("title", {}, about),
    draw("rect", { width: WIDTH, height: HEIGHT, rx: 6 }),
    draw("path", { class: "mark", d: MARKS[look], transform: "translate(10 7)" }),
    draw("text", { x: 28, y: 16, class: "name" }, cut),
    draw("text", { x: 28, y: 32, class: "state" }, [one.kind && one.kind.toLowerCase(), state].filter(Boolean).join(" · ")),
    one.more > 0 && draw("text", { x: WIDTH - 8, y: 32, class: "state more" }, `+${one.more}`),
  );
}

// A line to the next column is a curve. A longer one keeps to the lane above the row of its head, so
// that it never seems to come out of a box that it only passes.
function drawLink({ tail, head, relation, text, faint }, objects, labelled) {
  const [from, to] = [objects[tail], objects[head]];
  const gap = STEP_X - WIDTH;
  const x1 = MARGIN + from.column * STEP_X + WIDTH;
  const x2 = MARGIN + to.column * STEP_X;
  const [y1, y2] = [from, to].map((one) => MARGIN + one.row * STEP_Y + HEIGHT / 2);
  const lane = y2 - STEP_Y / 2;
  const curve = (fromX, fromY, toX, toY) => `C${(fromX + toX) / 2} ${fromY} ${(fromX + toX) / 2} ${toY} ${toX} ${toY}`;
  const far = to.column !== from.column + 1;
  const d = far
    ? `M${x1} ${y1}${curve(x1, y1, x1 + gap / 2, lane)}H${x2 - gap / 2}${curve(x2 - gap / 2, lane, x2, y2)}`
    : `M${x1} ${y1}${curve(x1, y1, x2, y2)}`;
  const words = relation === "after" && labelled && !far && draw("text", { x: x2 - 8, y: y2 - 5, class: "told" }, text);
  return draw("g", { class: faint ? "line faint" : "line" }, draw("path", { class: `link ${relation}`, d, "marker-end": "url(#arrow)" }), words);
}

// Left and right along the links, up and down within the column.
function nextOf(key, at, objects, links) {
  const here = objects[at];
  const near = (found) =>
    found.filter((it) => linkOf(objects[it])).sort((a, b) => Math.abs(objects[a].row - here.row) - Math.abs(objects[b].row - here.row))[0];
  const column = (sign) => near(objects.map((_, it) => it).filter((it) => objects[it].column === here.column && sign * (objects[it].row - here.row) > 0));
  switch (key) {
    case "ArrowRight":
      return near(links.filter((link) => link.tail === at).map((link) => link.head));
    case "ArrowLeft":
      return near(links.filter((link) => link.head === at).map((link) => link.tail));
    case "ArrowDown":
      return column(1);
    case "ArrowUp":
      return column(-1);
    default:
      return undefined;
  }
}

function tableOf(objects, links) {
  const named = (at, text) => {
    const one = objects[at];
    return make("li", {}, nameOf(one), text && ` (${text})`);
  };
  const list = (found, left = 0) =>
    make("td", {}, found.length ? make("ul", { class: "plain" }, found, left > 0 && make("li", {}, `and ${left} more`)) : "-");
  const rows = objects.map((one, at) => {
    const before = links.filter((link) => link.head === at);
    const after = links.filter((link) => link.tail === at);
    const word = (link) => [link.relation === "after" ? "" : link.relation, link.text].filter(Boolean).join(": ");
    return (
      one.key &&
      make(
        "tr",
        {},
        make("td", {}, nameOf(one)),
        make("td", {}, phaseMark(one.phase)),
        make("td", {}, one.done || "-"),
        make("td", { class: "wide" }, plain(one.why)),
        list(before.map((link) => named(link.tail, word(link)))),
        list(after.slice(0, LISTED).map((link) => named(link.head, "")), after.length - LISTED),
      )
    );
  });
  return [
    make("h2", {}, "The same as a table"),
    table(["Object", "Status", "Done", "Why", "Comes after", "Before"], rows.filter(Boolean), "Objects and their links"),
  ];
}

function nameOf(one) {
  const href = linkOf(one);
  return href ? make("a", { href }, titleOf(one)) : titleOf(one);
}

function titleOf(one) {
  return one.key || "objects that this token may not see";
}

// Without one where there is no such object, or it may not be seen.
function linkOf(one) {
  return one.key && one.phase !== MISSING ? pageOf(one.plural, one) : null;
}
