// The first view: how much runs, waits and failed, what it costs, and what needs a person.

import { plain } from "./ansi.js";
import { get } from "./api.js";
import { make, replace, table } from "./dom.js";
import { age, pageOf, phaseMark, usd } from "./format.js";
import { kindsByName } from "./kinds.js";
import { namespace } from "./navigation.js";
import { refresher } from "./refreshing.js";

const ROWS = 12;

export async function showOverview({ main, signal }) {
  const kinds = await kindsByName();

  async function refresh() {
    const within = { namespace: namespace() };
    const [running, failed, waiting, all, cost] = await Promise.all([
      get("objects", { ...within, phase: "Running", limit: ROWS, sort: "-created" }, signal),
      get("objects", { ...within, phase: "Failed,Degraded,Exceeded", limit: ROWS, sort: "-created" }, signal),
      get("objects", { ...within, phase: "Pending,Queued,Suspended", limit: ROWS, sort: "-created" }, signal),
      get("objects", { ...within, limit: 1 }, signal),
      get("cost", within, signal).catch(() => null),
    ]);
    const counts = all.metadata.counts;
    replace(
      main,
      make("h1", {}, "Overview"),
      make(
        "ul",
        { class: "cards" },
        card("running", counts.Running ?? 0, "/objects?phase=Running"),
        card("waiting", (counts.Pending ?? 0) + (counts.Queued ?? 0), "/objects?phase=Pending,Queued"),
        card("failed", counts.Failed ?? 0, "/objects?phase=Failed"),
        card("succeeded", counts.Succeeded ?? 0, "/objects?phase=Succeeded"),
        cost && card("spent today", usd(cost.today ?? 0), null),
        cost && card("an hour, now", usd(cost.perHour ?? 0), null),
      ),
      section("Running", running.items, "Nothing runs."),
      section("Needs a look", failed.items, "Nothing failed."),
      section("Waiting", waiting.items, "Nothing waits."),
      all.metadata.total === 0 && make("p", {}, "There is nothing yet. ", make("a", { href: "/plan" }, "Apply a first manifest"), "."),
    );
  }

  function card(title, value, href) {
    const label = href ? make("a", { href }, title) : title;
    return make("li", {}, make("b", {}, String(value)), label);
  }

  function section(title, items, none) {
    if (!items.length) {
      return [make("h2", {}, title), make("p", { class: "quiet" }, none)];
    }
    const rows = items.map((item) => {
      const { metadata, status, kind } = item;
      const done = status.total === undefined ? "" : `${status.succeeded ?? 0}/${status.total}`;
      return make(
        "tr",
        {},
        make("td", {}, make("a", { href: pageOf(kinds[kind].plural, metadata) }, `${kind.toLowerCase()}/${metadata.name}`)),
        make("td", {}, phaseMark(status.phase)),
        make("td", {}, done),
        make("td", {}, usd(status.cost?.actual)),
        make("td", {}, age(metadata.creationTimestamp)),
        make("td", { class: "wide" }, plain(item.why || status.message)),
      );
    });
    return [make("h2", {}, title), table(["Object", "Status", "Done", "Cost", "Age", "Why"], rows, title)];
  }

  await refresh();
  return { changed: refresher(refresh, signal) };
}
