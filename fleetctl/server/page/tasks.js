// The tasks of an object as a grid that stays quick at 100,000: the server sends one letter a task, and
// only the rows that are on the screen are drawn. Below it the task that is chosen, with its attempts.

import { plain } from "./ansi.js";
import { get } from "./api.js";
import { announce, make, notice, replace, table } from "./dom.js";
import { pageOf, phaseMark, span, usd } from "./format.js";
import { carryOut } from "./refreshing.js";

const CELL = 14;
const GAP = 2;
const STEP = CELL + GAP;
const STATES = {
  s: ["Succeeded", "--good"],
  c: ["Cached", "--good"],
  r: ["Running", "--busy"],
  b: ["Starting", "--busy"],
  f: ["Failed", "--bad"],
  x: ["Stopped", "--off"],
  o: ["Outdated", "--waits"],
  q: ["Not begun", "--line"],
};
const KEYS = { ArrowLeft: -1, ArrowRight: 1 };

export async function showTasks({ body, path, namespace, signal, query, object, kind }) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const rest = make("div", { class: "rest" });
  const grid = make(
    "div",
    { class: "grid", tabindex: "0", role: "application", "aria-label": `Grid of ${kind.unit}s; arrow keys choose one, Enter opens it` },
    canvas,
    rest,
  );
  const legend = make("div", { class: "legend" });
  const detail = make("div", {});
  let letters = "";
  let indexes = null; // of the tasks, where they have gaps
  let columns = 1;
  let chosen = Number(query.get("index") ?? -1); // a cell

  function layOut() {
    const rows = Math.ceil(letters.length / Math.max(1, Math.floor((grid.clientWidth - GAP) / STEP)));
    grid.style.height = `${Math.min(window.innerHeight * 0.6, rows * STEP + 2 * GAP + 2)}px`;
    const width = grid.clientWidth;
    const height = grid.clientHeight;
    const ratio = window.devicePixelRatio || 1;
    columns = Math.max(1, Math.floor((width - GAP) / STEP));
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    rest.style.height = `${Math.max(0, Math.ceil(letters.length / columns) * STEP + GAP - height)}px`;
    draw();
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colours = Object.fromEntries(Object.entries(STATES).map(([letter, [, name]]) => [letter, style.getPropertyValue(name)]));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    const first = Math.floor(grid.scrollTop / STEP);
    const lastRow = Math.ceil((grid.scrollTop + grid.clientHeight) / STEP);
    for (let index = first * columns; index < Math.min(letters.length, lastRow * columns); index += 1) {
      const x = GAP + (index % columns) * STEP;
      const y = GAP + Math.floor(index / columns) * STEP - grid.scrollTop;
      pen.fillStyle = colours[letters[index]] ?? colours.q;
      pen.fillRect(x, y, CELL, CELL);
      if (letters[index] === "f") {
        cross(pen, x, y, style.getPropertyValue("--ground"));
      }
      if (index === chosen) {
        pen.strokeStyle = style.getPropertyValue("--text");
        pen.lineWidth = 2;
        pen.strokeRect(x - 1, y - 1, CELL + 2, CELL + 2);
      }
    }
  }

  async function refresh() {
    const found = await get(`${path}/states`, { namespace }, signal);
    letters = found.letters;
    indexes = found.indexes;
    replace(legend, legendOf(letters));
    layOut();
  }

  function indexOf(cell) {
    return indexes ? indexes[cell] : cell;
  }

  async function choose(index) {
    chosen = index;
    const row = Math.floor(index / columns) * STEP;
    if (row < grid.scrollTop || row + STEP > grid.scrollTop + grid.clientHeight) {
      grid.scrollTop = Math.max(0, row - grid.clientHeight / 2);
    }
    draw();
    const [title] = STATES[letters[index]] ?? STATES.q;
    announce(`${kind.unit} ${indexOf(index)}: ${title}`);
    await carryOut(showChosen, signal, (error) => replace(detail, notice(error.message, error.hint, true)));
  }

  async function showChosen() {
    if (chosen < 0 || chosen >= letters.length) {
      replace(detail, make("p", { class: "quiet" }, `Choose a ${kind.unit} to see its attempts.`));
      return;
    }
    const index = indexOf(chosen);
    const { items } = await get(`${path}/tasks`, { namespace, index }, signal);
    if (index !== indexOf(chosen)) {
      return; // another one was chosen meanwhile, and its reply may have come first
    }
    if (!items.length) {
      replace(detail, make("h2", {}, `${kind.unit} ${index}`), make("p", { class: "quiet" }, "It has not begun."));
      return;
    }
    const base = pageOf(kind.plural, object.metadata);
    const rows = items.map(({ metadata, status }) =>
      make(
        "tr",
        {},
        make("td", {}, make("a", { href: `${base}/logs?index=${index}&attempt=${metadata.attempt}` }, `attempt ${metadata.attempt}`)),
        make("td", {}, phaseMark(status.phase)),
        make("td", {}, status.provider ?? ""),
        make("td", {}, status.exitCode === null ? "" : String(status.exitCode ?? "")),
        make("td", {}, span(status.durationSeconds)),
        make("td", {}, usd(status.cost?.actual)),
        make("td", { class: "wide" }, plain([status.reason, [status.message, status.hint].filter(Boolean).join("; hint: ")].filter(Boolean).join(": "))),
      ),
    );
    const titles = ["Log", "Status", "Provider", "Exit code", "Duration", "Cost", "Message"];
    replace(
      detail,
      make("h2", {}, `${kind.unit} ${index}`),
      parametersOf(items.at(-1)),
      table(titles, rows, "Attempts"),
    );
  }

  function indexAt(event) {
    const box = grid.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - GAP) / STEP);
    const row = Math.floor((event.clientY - box.top - GAP + grid.scrollTop) / STEP);
    const index = row * columns + column;
    return column >= 0 && column < columns && index < letters.length ? index : -1;
  }

  grid.addEventListener("scroll", draw, { passive: true });
  grid.addEventListener("click", (event) => {
    const index = indexAt(event);
    if (index >= 0) {
      choose(index);
    }
  });
  grid.addEventListener("keydown", (event) => {
    const by = KEYS[event.key] ?? (event.key === "ArrowDown" ? columns : event.key === "ArrowUp" ? -columns : 0);
    const to = Math.max(chosen, 0) + (chosen < 0 ? 0 : by);
    if (by && to >= 0 && to < letters.length) {
      event.preventDefault();
      choose(to);
    }
  });
  const resized = new ResizeObserver(layOut);
  resized.observe(grid);
  signal.addEventListener("abort", () => resized.disconnect());

  replace(body, legend, grid, detail);
  await refresh();
  await (chosen >= 0 && chosen < letters.length ? choose(chosen) : showChosen());
  if (!letters.length) {
    replace(legend, notice(`It has no ${kind.unit} yet.`));
  }
  return {
    async changed() {
      await refresh();
      await showChosen();
    },
  };
}

function parametersOf({ spec }) {
  const params = spec.params ?? {};
  return Object.keys(params).length > 0 && make("pre", { tabindex: "0" }, JSON.stringify(params, null, 2));
}

function legendOf(letters) {
  const counts = {};
  for (const letter of letters) {
    counts[letter] = (counts[letter] ?? 0) + 1;
  }
  const classes = { "--good": "good", "--bad": "bad", "--busy": "busy", "--off": "off", "--waits": "waits", "--line": "quiet" };
  return Object.entries(STATES)
    .filter(([letter]) => counts[letter])
    .map(([letter, [title, name]]) => make("span", { class: `phase ${classes[name]}` }, `${title} ${counts[letter]}`));
}

// A failed task is known by its cross, not by colour alone.
function cross(pen, x, y, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(x + 4, y + 4);
  pen.lineTo(x + CELL - 4, y + CELL - 4);
  pen.moveTo(x + CELL - 4, y + 4);
  pen.lineTo(x + 4, y + CELL - 4);
  pen.stroke();
}
