// The plots of an object, and of several objects in one: the server's own drawings, of the same code as
// `fleetctl plot`. What is compared, by which metric and over which axis, is in the address.

import { get } from "./api.js";
import { bindCharts } from "./chart.js";
import { make, notice, replace, table } from "./dom.js";
import { pageOf } from "./format.js";
import { kindsByName } from "./kinds.js";
import { go, namespace } from "./navigation.js";
import { carryOut, refresher } from "./refreshing.js";

const HOW = "point at a trial, or use the arrow keys in a drawing; Escape releases it";
const AXES = [["step", "step"], ["time", "time"]];

// The entry of an object in the address of a comparison.
export function entryOf({ kind, metadata }, index) {
  const within = metadata.namespace && metadata.namespace !== "default" ? `@${metadata.namespace}` : "";
  return `${kind.toLowerCase()}/${metadata.name}${within}${index === undefined ? "" : `:${index}`}`;
}

export function compareAddress(entries, { metric = "", x = "step" } = {}) {
  const parts = new URLSearchParams();
  if (metric) {
    parts.set("metric", metric);
  }
  if (x !== "step") {
    parts.set("x", x);
  }
  const rest = String(parts);
  // Entries are letters, digits and signs that an address may have as they are.
  return `/compare?runs=${entries.join(",")}${rest ? `&${rest}` : ""}`;
}

// Draws charts into a node; again only where they differ, and never under a pointer that drags. What a
// person has opened, and the control that has the focus, stay.
export function plotDrawer(body, signal) {
  let shown = "";
  let binding = new AbortController();
  signal.addEventListener("abort", () => binding.abort());

  return ({ items, system }) => {
    const now = JSON.stringify([items, system]);
    if (now === shown || body.querySelector(".dragging")) {
      return;
    }
    const focused = body.contains(document.activeElement) ? document.activeElement.dataset.control : null;
    const open = [...body.querySelectorAll("details")].map((one) => one.open);
    binding.abort();
    binding = new AbortController();
    shown = now;
    const figures = items.map(figureOf);
    const machines = system.map(figureOf);
    const trials = trialTable(figures);
    const message = trials && make("output", { id: "told", "aria-live": "polite" }, HOW);
    const charts = make("div", { class: "charts" }, message, figures, trials, machines);
    replace(body, items.length || system.length ? charts : notice("No task reported a metric yet."));
    bindCharts(charts, { signal: binding.signal });
    body.querySelectorAll("details").forEach((one, at) => {
      one.open = open[at] ?? Boolean(location.hash);
    });
    const control = [...body.querySelectorAll("[data-control]")].find((one) => one.dataset.control === focused);
    control?.focus();
  };
}

function figureOf({ title, note, svg }) {
  const caption = make("figcaption", { class: "quiet" }, note);
  const figure = make("figure", { tabindex: svg ? "0" : null, "aria-label": `${title}: ${note}` }, svg && drawing(svg), caption);
  return make("div", { class: "plot" }, make("h2", {}, title), figure);
}

// The drawing becomes part of this page, so that it can answer. Everything in it that a person wrote is
// text already; its styles are those of chart.css, which the page has, and the policy lets in no others.
function drawing(svg) {
  const plain = svg.replace(/<style>[^]*?<\/style>/, "");
  const made = new DOMParser().parseFromString(plain, "image/svg+xml").documentElement;
  made.querySelectorAll("script, foreignObject").forEach((one) => one.remove());
  made.setAttribute("aria-hidden", "true");
  return document.importNode(made, true);
}

// All trials of the first drawing that has every one, best first.
function trialTable(figures) {
  const full = figures.find((one) => one.querySelector(".row"));
  if (!full) {
    return null;
  }
  const rows = [...full.querySelectorAll(".row")].reverse().map((row, at) =>
    make("tr", { "data-trial": row.dataset.trial }, make("td", {}, String(at + 1)), make("td", { class: "wide" }, row.textContent)),
  );
  return make(
    "details",
    { class: "trials" },
    make("summary", {}, `All ${rows.length} trials, best first`),
    table(["Rank", "Trial"], rows, "Trials"),
  );
}

// The part "Plots" of an object's page.
export async function showPlots({ body, path, namespace: within, signal, object }) {
  const drawn = make("div", {});
  const draw = plotDrawer(drawn, signal);
  const refresh = async () => draw(await get(`${path}/plots`, { namespace: within }, signal));
  const link = make("a", { href: compareAddress([entryOf(object)]) }, "Compare with others");
  replace(body, make("p", {}, link), drawn);
  await refresh();
  return { changed: refresh };
}

export async function showCompare({ main, signal, query }) {
  const kinds = await kindsByName();
  const asked = {
    entries: (query.get("runs") ?? "").split(",").filter(Boolean),
    metric: query.get("metric") ?? "",
    x: query.get("x") ?? "step",
  };
  const list = make("div", {});
  const drawn = make("div", {});
  const problem = make("div", {});
  const draw = plotDrawer(drawn, signal);
  let compared = new Set(); // `Kind/name` of what is drawn
  let curvesShown = "";

  const metricBox = make("select", { id: "metric", onchange: () => change({ metric: metricBox.value }) });
  const axisBox = make(
    "select",
    { id: "x", onchange: () => change({ x: axisBox.value }) },
    AXES.map(([value, title]) => make("option", { value, selected: value === asked.x }, title)),
  );
  const addBox = make("input", { id: "add", placeholder: "trainingrun/sft", autocomplete: "off" });
  const add = (event) => {
    event.preventDefault();
    const entry = addBox.value.trim();
    if (entry) {
      addBox.value = "";
      change({ entries: [...asked.entries, entry] });
    }
  };

  function change(now) {
    Object.assign(asked, now);
    go(compareAddress(asked.entries, asked), { silent: true });
    carryOut(refresh, signal, report);
  }

  function report(error) {
    replace(problem, notice(error.message, error.hint, true));
  }

  async function refresh() {
    if (!asked.entries.length) {
      replace(list, make("p", { class: "quiet" }, "Nothing is compared. Select runs in the list of objects, or add one here."));
      replace(drawn);
      return;
    }
    const { entries, ...rest } = asked;
    const found = await get("plots", { ...rest, runs: entries.join(","), namespace: namespace() }, signal);
    replace(problem);
    compared = new Set(found.curves.map((one) => `${one.kind}/${one.name}`));
    const now = JSON.stringify([found.curves, found.metrics, asked]);
    if (now !== curvesShown) {
      curvesShown = now;
      showChoices(found);
    }
    draw(found);
  }

  function showChoices({ curves, metrics }) {
    const names = metrics.includes(asked.metric) || !asked.metric ? metrics : [asked.metric, ...metrics];
    replace(
      metricBox,
      make("option", { value: "" }, "the first few"),
      names.map((name) => make("option", { value: name, selected: name === asked.metric }, name)),
    );
    const focused = document.activeElement?.dataset.control;
    const rows = curves.map((one) => curveRow(one, curves));
    replace(list, table([make("span", { class: "unseen" }, "draw"), "Object", "Part"], rows, "Curves"));
    [...list.querySelectorAll("input")].find((box) => box.dataset.control === focused)?.focus();
  }

  function curveRow(one, curves) {
    const metadata = { name: one.name, namespace: one.namespace };
    const key = entryOf({ kind: one.kind, metadata });
    const box = make("input", {
      type: "checkbox",
      checked: one.picked,
      "data-control": `${key}:${one.index}`,
      "aria-label": `draw ${key} ${one.unit}`,
      onchange: () => {
        const picked = curves.filter((it) => (it === one ? box.checked : it.picked));
        change({ entries: entriesOf(picked, curves) });
      },
    });
    return make(
      "tr",
      {},
      make("td", {}, box),
      make("td", {}, make("a", { href: `${pageOf(kinds[one.kind].plural, metadata)}/plots` }, key)),
      make("td", { class: "wide" }, one.unit),
    );
  }

  replace(
    main,
    make("h1", {}, "Compare runs"),
    make(
      "form",
      { class: "bar", onsubmit: add },
      make("label", { for: "metric" }, "Metric"),
      metricBox,
      make("label", { for: "x" }, "Over"),
      axisBox,
      make("label", { for: "add" }, "Add"),
      addBox,
      make("button", {}, "Add a run"),
    ),
    problem,
    drawn,
    make("h2", {}, "Curves"),
    list,
  );
  await carryOut(refresh, signal, report);
  const changed = refresher(refresh, signal);
  return {
    changed(change) {
      if (!change || compared.has(`${change.object.kind}/${change.object.metadata.name}`)) {
        changed();
      }
    },
  };
}

// An object alone where all of its parts are drawn, else its parts one by one.
function entriesOf(picked, curves) {
  const sameObject = (a, b) => a.kind === b.kind && a.name === b.name && a.namespace === b.namespace;
  const entries = picked.map((one) => {
    const own = curves.filter((it) => sameObject(it, one));
    const whole = own.every((it) => picked.includes(it));
    return entryOf({ kind: one.kind, metadata: one }, whole ? undefined : one.index);
  });
  return [...new Set(entries)];
}
