// The list of objects: filter, sort and pages are the server's; rows follow changes as they come.

import { plain } from "./ansi.js";
import { get } from "./api.js";
import { make, notice, replace, table } from "./dom.js";
import { pageOf, phaseClass, phaseMark } from "./format.js";
import { kindsByName } from "./kinds.js";
import { go, namespace } from "./navigation.js";
import { compareAddress, entryOf } from "./plots.js";
import { carryOut, refresher } from "./refreshing.js";
import { verbBar } from "./verbs.js";

const LIMIT = 100;

function authorOf({ metadata }) {
  return metadata.annotations?.["fleetctl.dev/applied-by"];
}

export async function showObjects({ main, signal, query }) {
  const kinds = await kindsByName();
  const asked = {
    kind: query.get("kind") ?? "",
    phase: query.get("phase") ?? "",
    filter: query.get("filter") ?? "",
    sort: query.get("sort") ?? "-created",
  };
  const pages = [""]; // the `continue` of each page that was shown
  const selected = new Map(); // key -> the entry of a comparison
  const list = make("div", {});
  const about = make("p", { class: "quiet" });
  const counts = make("div", { class: "legend" });
  const kindBox = make(
    "select",
    { id: "kind", onchange: () => change("kind", kindBox.value) },
    make("option", { value: "" }, "all kinds"),
    Object.values(kinds).map((one) => make("option", { value: one.plural, selected: one.plural === asked.kind }, one.kind)),
  );
  const filterBox = make("input", {
    id: "filter",
    type: "search",
    value: asked.filter,
    placeholder: "name, or team=rlm",
    onchange: () => change("filter", filterBox.value),
  });
  const sortBox = make(
    "select",
    { id: "sort", onchange: () => change("sort", sortBox.value) },
    [["-created", "newest first"], ["created", "oldest first"], ["name", "by name"], ["phase", "by status"]].map(
      ([value, title]) => make("option", { value, selected: value === asked.sort }, title),
    ),
  );

  function change(name, value) {
    asked[name] = value;
    pages.length = 1;
    const found = Object.entries(asked).filter(([key, it]) => it && !(key === "sort" && it === "-created"));
    go(`/objects${found.length ? `?${new URLSearchParams(found)}` : ""}`, { silent: true });
    carryOut(refresh, signal, report);
  }

  function compare() {
    go(compareAddress([...selected.values()]));
  }

  function report(error) {
    replace(list, notice(error.message, error.hint, true));
  }

  async function refresh() {
    const { kind, ...rest } = asked;
    const found = await get(
      kind || "objects",
      { ...rest, namespace: namespace(), limit: LIMIT, continue: pages.at(-1) },
      signal,
    );
    const { columns, total } = found.metadata;
    replace(about, Object.values(kinds).find((one) => one.plural === kind)?.summary ?? "");
    replace(counts, countLinks(found.metadata.counts, total));
    const named = found.items.some(authorOf); // one person's own machine names nobody
    const rows = found.items.map((item) => row(item, named));
    const titles = [make("span", { class: "unseen" }, "select"), ...columns, ...(named ? ["User"] : []), "Why"];
    replace(
      list,
      rows.length ? table(titles, rows, "Objects") : make("p", { class: "quiet" }, "No object is like that."),
      pager(found.metadata.continue),
    );
  }

  function countLinks(found, total) {
    const all = make("button", { "aria-pressed": String(!asked.phase), onclick: () => change("phase", "") }, `all ${total}`);
    const each = Object.entries(found).map(([phase, count]) =>
      make(
        "button",
        { "aria-pressed": String(asked.phase === phase), onclick: () => change("phase", phase) },
        make("span", { class: `phase ${phaseClass(phase)}` }, `${phase} ${count}`),
      ),
    );
    return [all, ...each];
  }

  function row(item, named) {
    const { metadata, kind, status } = item;
    const key = `${kind.toLowerCase()}/${metadata.name}${metadata.namespace ? ` -n ${metadata.namespace}` : ""}`;
    const check = make("input", {
      type: "checkbox",
      "aria-label": `select ${key}`,
      checked: selected.has(key),
      onchange: () => (check.checked ? selected.set(key, entryOf(item)) : selected.delete(key)),
    });
    const cells = item.cells.map((cell, at) => {
      if (at === 0) {
        return make("td", {}, make("a", { href: pageOf(kinds[kind].plural, metadata) }, String(cell)));
      }
      return make("td", {}, cell === status.phase ? phaseMark(status.phase) : plain(cell));
    });
    const user = named && make("td", {}, plain(authorOf(item)) || "-");
    return make("tr", {}, make("td", {}, check), cells, user, make("td", { class: "wide" }, plain(item.why)));
  }

  function pager(more) {
    const step = (act) => () => {
      act();
      carryOut(refresh, signal, report);
    };
    return make(
      "div",
      { class: "bar" },
      pages.length > 1 && make("button", { onclick: step(() => pages.pop()) }, "Previous page"),
      more && make("button", { onclick: step(() => pages.push(more)) }, "Next page"),
    );
  }

  replace(
    main,
    make("h1", {}, "Objects"),
    about,
    make(
      "div",
      { class: "bar" },
      make("label", { for: "kind" }, "Kind"),
      kindBox,
      make("label", { for: "filter" }, "Filter"),
      filterBox,
      make("label", { for: "sort" }, "Sort"),
      sortBox,
    ),
    counts,
    verbBar(() => [...selected.keys()], { more: make("button", { onclick: compare }, "Compare plots") }),
    list,
  );
  await refresh();
  return { changed: refresher(refresh, signal) };
}
