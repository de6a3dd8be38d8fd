// Makes drawings answer, in the file of `plot -o html` and on the page of `fleetctl serve`: one trial
// is chosen in all of them at once, by pointer or with the arrow keys; and ranges of axes, dragged or
// set by sliders, choose trials. The ranges are in the address, behind its `#`, by axis and by value.

const STEPS = 1000; // of a slider
const NEAR = 0.5 / STEPS; // positions that count as equal: an address has values in few digits
const CLICK = 4; // a pointer that moved less has not dragged, in units of the drawing
const BETWEEN = "..";

// root: an element with drawings, and perhaps an #told for messages and a table of the trials.
export function bindCharts(root, { signal } = {}) {
  const told = root.querySelector("#told");
  const rest = told?.textContent ?? "";
  const marks = [...root.querySelectorAll("[data-trial]")];
  const names = readNames(marks);
  const order = orderOf(root, marks);
  const axes = [...root.querySelectorAll("[data-axis]")].map(readAxis);
  const ranges = readAddress(axes);
  let kept = null;

  function choose(trial) {
    root.classList.toggle("picked", trial !== null);
    for (const mark of marks) {
      const chosen = mark.dataset.trial === trial;
      mark.classList.toggle("chosen", chosen);
      if (chosen && mark.tagName === "path") {
        mark.parentNode.insertBefore(mark, afterRows(mark));
      }
    }
    if (told) {
      told.textContent = trial === null ? rest : names.get(trial) || `trial ${trial}`;
    }
  }

  const outside = () => trialsOutside(axes, ranges);
  const tools = axes.length > 0 && makeTools(axes, names.size, setRange);

  // Shows the ranges in the drawings, the table, the sliders and the address.
  function show() {
    const out = outside();
    for (const mark of marks) {
      mark.classList.toggle("out", out.has(mark.dataset.trial));
    }
    for (const axis of axes) {
      drawRange(axis, ranges.get(axis.name));
    }
    tools?.show?.(ranges, names.size - out.size);
  }

  function setRange(name, range) {
    if (range) {
      ranges.set(name, range);
    } else if (name === null) {
      ranges.clear();
    } else {
      ranges.delete(name);
    }
    writeAddress(axes, ranges);
    show();
  }

  for (const mark of marks) {
    mark.addEventListener("pointerenter", () => choose(mark.dataset.trial));
    mark.addEventListener("pointerleave", () => choose(kept));
    mark.addEventListener("click", () => {
      kept = kept === mark.dataset.trial ? null : mark.dataset.trial;
      choose(kept);
    });
  }
  for (const axis of axes) {
    listenToDrags(axis, setRange, root);
  }
  root.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") {
      choose((kept = null));
    }
    if (!step || !order.length || !event.target.closest("figure")) {
      return;
    }
    const out = outside();
    const inside = order.filter((trial) => !out.has(trial));
    const at = inside.indexOf(kept);
    const next = at < 0 ? (step > 0 ? 0 : inside.length - 1) : at + step;
    kept = inside[Math.max(0, Math.min(inside.length - 1, next))] ?? null;
    choose(kept);
    event.preventDefault();
  }, { signal });
  window.addEventListener("hashchange", () => {
    ranges.clear();
    readAddress(axes).forEach((range, name) => ranges.set(name, range));
    show();
  }, { signal });

  if (tools) {
    axes[0].figure.after(tools.element);
    show();
  }
}

function readNames(marks) {
  const names = new Map();
  for (const mark of marks) {
    const title = mark.querySelector("title");
    if (title) {
      names.set(mark.dataset.trial, title.textContent);
    }
  }
  return names;
}

// Best first, as the table has them.
function orderOf(root, marks) {
  const rows = [...root.querySelectorAll("tr[data-trial]")];
  return [...new Set([...rows, ...marks].map((mark) => mark.dataset.trial))];
}

// Over the other lines, below the axes.
function afterRows(mark) {
  const rows = mark.parentNode.querySelectorAll(".row");
  return rows[rows.length - 1].nextSibling;
}

function readAxis(element) {
  const { axis, kind, first, last, words, x } = element.dataset;
  const hand = element.querySelector(".hand");
  const top = Number(element.dataset.top);
  const height = Number(element.dataset.high);
  const places = new Map(); // trial -> position, from 0 to 1
  for (const row of element.ownerSVGElement.querySelectorAll(".row")) {
    for (const [, at, y] of row.getAttribute("d").matchAll(/[ML]([\d.]+) ([\d.]+)/g)) {
      if (at === x) {
        places.set(row.dataset.trial, 1 - (Number(y) - top) / height);
      }
    }
  }
  const scale = scaleOf(kind, Number(first), Number(last), words ? JSON.parse(words) : []);
  const figure = element.closest("figure");
  return { name: axis, element, figure, hand, top, height, places, ...scale };
}

// step: of a slider; snap: a range without any value grows to the nearest one; write, read: a position as a text.
function scaleOf(kind, low, high, words) {
  if (kind === "words") {
    const last = Math.max(words.length - 1, 1);
    const nearest = (position) => Math.max(0, Math.min(words.length - 1, Math.round(position * last)));
    const quoted = (word) => encodeURIComponent(word).replaceAll(".", "%2E");
    return {
      step: STEPS / last,
      snap: (position) => nearest(position) / last,
      show: (position) => words[nearest(position)],
      write: (position) => quoted(words[nearest(position)]),
      read: (text) => {
        const at = words.findIndex((word) => quoted(word) === text);
        return at < 0 ? null : at / last;
      },
    };
  }
  const log = kind === "log";
  const value = (position) => (log ? low * (high / low) ** position : low + (high - low) * position);
  const write = (position) => String(Number(value(position).toPrecision(6)));
  return {
    step: 1,
    snap: (position) => position,
    show: (position) => String(Number(value(position).toPrecision(3))),
    write,
    read: (text) => {
      const number = text === "" ? NaN : Number(text);
      const position = log ? Math.log(number / low) / Math.log(high / low) : (number - low) / (high - low);
      return Number.isFinite(position) ? Math.max(0, Math.min(1, position)) : null;
    },
  };
}

function readAddress(axes) {
  const found = new Map();
  const given = new URLSearchParams(location.hash.slice(1));
  for (const axis of axes) {
    const [low, high] = (given.get(axis.name) ?? "").split(BETWEEN).map(axis.read);
    if (low !== null && high !== null && high !== undefined && low <= high) {
      found.set(axis.name, [low, high]);
    }
  }
  return found;
}

function writeAddress(axes, ranges) {
  const parts = new URLSearchParams();
  for (const axis of axes) {
    const range = ranges.get(axis.name);
    if (range) {
      parts.set(axis.name, range.map(axis.write).join(BETWEEN));
    }
  }
  const text = String(parts);
  history.replaceState(history.state, "", text ? `#${text}` : location.pathname + location.search);
}

// A trial without a value on an axis with a range is outside of it.
function trialsOutside(axes, ranges) {
  const out = new Set();
  for (const axis of axes.filter(({ name }) => ranges.has(name))) {
    const [low, high] = ranges.get(axis.name);
    for (const row of axis.element.ownerSVGElement.querySelectorAll(".row")) {
      const place = axis.places.get(row.dataset.trial);
      if (place === undefined || place < low - NEAR || place > high + NEAR) {
        out.add(row.dataset.trial);
      }
    }
  }
  return out;
}

function drawRange({ element, top, height }, range) {
  const brush = element.querySelector(".brush");
  const [low, high] = range ?? [0, 0];
  brush.setAttribute("y", String(top + (1 - high) * height));
  brush.setAttribute("height", range ? String(Math.max((high - low) * height, 3)) : "0");
}

function listenToDrags(axis, setRange, root) {
  const { name, hand, top, height } = axis;
  let from = null;
  let moved = false;

  const locate = (event) => {
    const matrix = axis.element.ownerSVGElement.getScreenCTM().inverse();
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix).y;
  };
  const position = (y) => Math.max(0, Math.min(1, 1 - (y - top) / height));

  hand.addEventListener("pointerdown", (event) => {
    from = locate(event);
    moved = false;
    hand.setPointerCapture(event.pointerId);
    root.classList.add("dragging");
  });
  hand.addEventListener("pointermove", (event) => {
    const to = from === null ? null : locate(event);
    if (to !== null && (moved || Math.abs(to - from) >= CLICK)) {
      moved = true;
      const ends = [position(Math.max(from, to)), position(Math.min(from, to))];
      setRange(name, ends.map(axis.snap));
    }
  });
  const end = () => {
    if (from !== null && !moved) {
      setRange(name, null);
    }
    from = null;
    root.classList.remove("dragging");
  };
  hand.addEventListener("pointerup", end);
  hand.addEventListener("pointercancel", () => {
    moved = true; // a touch that became a scroll is no click
    end();
  });
}

// Two sliders for each axis, for hands that do not drag and for keyboards; how many trials are chosen.
function makeTools(axes, count, setRange) {
  const element = build("div", { class: "ranges" });
  const summary = build("summary", {}, "Choose trials by ranges");
  const chosen = build("output", { "aria-live": "polite" });
  const clear = build("button", { type: "button", "data-control": "clear" }, "Clear ranges");
  clear.addEventListener("click", () => setRange(null, null));
  const rows = new Map();
  for (const axis of axes) {
    if (!rows.has(axis.name)) {
      rows.set(axis.name, makeSliders(axis, setRange));
    }
  }
  const body = build("tbody", {});
  body.append(...[...rows.values()].map((row) => row.element));
  const table = build("table", {});
  table.append(body);
  const box = build("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ranges" });
  box.append(table);
  const details = build("details", {});
  details.append(summary, box);
  element.append(clear, chosen, details);

  function show(ranges, left) {
    const texts = [];
    for (const [name, row] of rows) {
      row.show(ranges.get(name));
      if (ranges.has(name)) {
        texts.push(`${name} ${row.text(ranges.get(name))}`);
      }
    }
    clear.disabled = !ranges.size;
    const how = "drag along an axis, or set ranges, to choose trials; a click clears an axis";
    chosen.textContent = ranges.size ? `${left} of ${count} trials: ${texts.join(", ")}` : how;
  }

  return { element, show };
}

function makeSliders(axis, setRange) {
  const { name } = axis;
  const element = build("tr", {});
  const value = build("td", {});
  const [low, high] = ["from", "to"].map((word) =>
    build("input", {
      type: "range",
      min: "0",
      max: String(STEPS),
      "aria-label": `${name} ${word}`,
      "data-control": `${name} ${word}`,
    }),
  );

  const changed = (moved, other) => () => {
    const ends = [Number(moved.value) / STEPS, Number(other.value) / STEPS].sort((a, b) => a - b);
    const whole = ends[0] === 0 && ends[1] === 1;
    setRange(name, whole ? null : ends.map(axis.snap));
  };
  low.addEventListener("input", changed(low, high));
  high.addEventListener("input", changed(high, low));
  for (const slider of [low, high]) {
    // A slider between two words would stand still: the arrow keys go from word to word.
    slider.step = String(axis.step);
    const cell = build("td", {});
    cell.append(slider);
    element.append(cell);
  }
  element.prepend(build("th", { scope: "row" }, name));
  element.append(value);

  const text = (range) => range.map(axis.show).join(" to ");
  function show(range) {
    const [from, to] = range ?? [0, 1];
    low.value = String(from * STEPS);
    high.value = String(to * STEPS);
    low.setAttribute("aria-valuetext", axis.show(from));
    high.setAttribute("aria-valuetext", axis.show(to));
    value.textContent = range ? text(range) : "any";
  }

  return { element, show, text };
}

function build(tag, attributes, text = "") {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, value);
  }
  node.textContent = text;
  return node;
}
