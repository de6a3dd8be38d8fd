// Shows the view that the address names, and keeps one stream of changes open for all views.

import { ApiError, follow, get, mayPass, setToken } from "./api.js";
import { announce, make, notice, replace } from "./dom.js";
import { showEvents } from "./events.js";
import { showGraph } from "./graph.js";
import { SHOWS, chooseNamespace, go, namespace } from "./navigation.js";
import { showObject } from "./object.js";
import { showObjects } from "./objects.js";
import { showOverview } from "./overview.js";
import { showPlan } from "./plan.js";
import { showCompare } from "./plots.js";
import { AGAIN_MS } from "./refreshing.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const box = document.getElementById("namespace");

let view = null; // {changed, close} of the view that is shown
let closes = new AbortController(); // aborted when another view comes

const ROUTES = [
  [/^\/$/, "Overview", showOverview],
  [/^\/objects$/, "Objects", showObjects],
  [/^\/objects\/([^/]+)\/([^/]+)\/([^/]+)(?:\/([a-z]+))?$/, "", showObject],
  [/^\/compare$/, "Compare", showCompare],
  [/^\/graph$/, "Graph", showGraph],
  [/^\/events$/, "Events", showEvents],
  [/^\/plan$/, "Plan", showPlan],
];

async function show() {
  closes.abort();
  closes = new AbortController();
  const { signal } = closes;
  const path = location.pathname;
  const found = ROUTES.find(([pattern]) => pattern.test(path));
  markLinks(path);
  if (!found) {
    view = null;
    replace(main, make("h1", {}, "There is no such page"), make("a", { href: "/" }, "Overview"));
    return;
  }
  const [pattern, title, render] = found;
  const words = path.match(pattern).slice(1).map((word) => word && decodeURIComponent(word));
  document.title = `${title || words[2]} - fleetctl`;
  try {
    const made = await render({ main, words, signal, query: new URLSearchParams(location.search) });
    if (!signal.aborted) {
      view = made;
      announce(document.title);
    }
  } catch (error) {
    if (!signal.aborted) {
      view = null;
      showError(error);
      if (mayPass(error)) {
        setTimeout(() => signal.aborted || show(), AGAIN_MS);
      }
    }
  }
}

function showError(error) {
  if (error instanceof ApiError && error.status === 401) {
    showLogin(error);
    return;
  }
  replace(main, notice(error.message, error.hint, true));
}

function showLogin(error) {
  const field = make("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const enter = (event) => {
    event.preventDefault();
    setToken(field.value.trim());
    begin();
  };
  replace(
    main,
    make("h1", {}, "This server asks for a token"),
    notice(error.message, error.hint),
    make(
      "form",
      { class: "bar", onsubmit: enter },
      make("label", { for: "token" }, "Token"),
      field,
      make("button", {}, "Enter"),
    ),
    make("p", { class: "quiet" }, "An admin makes one with ", make("code", {}, "fleetctl token create"), ". It stays in this tab."),
  );
  field.focus();
}

function markLinks(path) {
  for (const link of document.querySelectorAll("nav a")) {
    const here = path === link.pathname || path.startsWith(`${link.pathname}/`);
    link.toggleAttribute("aria-current", false);
    if (here) {
      link.setAttribute("aria-current", "page");
    }
  }
}

async function watch(signal) {
  const state = (word) => {
    if (word === "live" && live.dataset.state === "lost") {
      view?.changed?.(null); // for what changed while nobody followed
    }
    live.dataset.state = word;
    live.textContent = word === "live" ? "live" : "connection lost, trying again";
  };
  try {
    await follow("objects", { watch: "1" }, {
      signal,
      state,
      event: ({ event, data }) => {
        if (event === "reset") {
          view?.changed?.(null);
        } else if (event === "change") {
          view?.changed?.(data);
        }
      },
    });
  } catch (error) {
    live.dataset.state = "lost";
    live.textContent = error.status === 401 ? "no token" : error.message;
  }
}

async function listNamespaces() {
  const found = await get("namespaces").catch(() => ({ items: [] }));
  const names = found.items.map((one) => one.name ?? one);
  replace(document.getElementById("namespaces"), names.map((name) => make("option", { value: name })));
}

let watching = new AbortController();

function begin() {
  watching.abort();
  watching = new AbortController();
  watch(watching.signal);
  listNamespaces();
  show();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0;
  if (!link || !plain || link.hasAttribute("download")) {
    return;
  }
  const href = link.getAttribute("href"); // a link of a drawing has no `pathname`
  const to = new URL(href, location.href);
  if (to.origin !== location.origin || href.startsWith("#") || to.pathname.startsWith("/api/")) {
    return;
  }
  event.preventDefault();
  go(to.pathname + to.search);
  main.focus();
});
window.addEventListener("popstate", show);
window.addEventListener(SHOWS, show);
box.value = namespace();
box.addEventListener("change", () => {
  chooseNamespace(box.value.trim());
  show();
});
begin();
