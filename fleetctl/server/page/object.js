// An object: why it is as it is, and its tasks, logs, results, artifacts, plots, details, events and
// manifest, each with an address of its own.

import { plain } from "./ansi.js";
import { get } from "./api.js";
import { showArtifacts } from "./artifacts.js";
import { showDetails } from "./details.js";
import { make, replace, table } from "./dom.js";
import { eventRows } from "./events.js";
import { age, pageOf, phaseMark, span, usd } from "./format.js";
import { graphOf } from "./graph.js";
import { kindsByName } from "./kinds.js";
import { showLogs } from "./logs.js";
import { showPlots } from "./plots.js";
import { refresher } from "./refreshing.js";
import { showTasks } from "./tasks.js";
import { verbBar } from "./verbs.js";

const OF_WORK = ["tasks", "logs", "results", "artifacts", "plots"];
const OF_OTHERS = ["details"];
const OF_ALL = ["events", "manifest"];
const RESULTS = 200;

export async function showObject({ main, words, signal, query }) {
  const [plural, within, name, wanted] = words;
  const namespace = within === "-" ? "" : within;
  const path = `${plural}/${encodeURIComponent(name)}`;
  const kinds = await kindsByName();
  const kind = Object.values(kinds).find((one) => one.plural === plural);
  const tabs = [...(kind?.runs ? OF_WORK : OF_OTHERS), ...OF_ALL];
  const tab = tabs.includes(wanted) ? wanted : tabs[0];
  const head = make("div", {});
  const body = make("div", { id: "tab" });

  async function refreshHead() {
    const found = await get(path, { namespace }, signal);
    replace(head, headOf(found));
    return found;
  }

  const object = await refreshHead();
  const key = `${object.kind.toLowerCase()}/${name}${namespace ? ` -n ${namespace}` : ""}`;
  const more = make("a", { href: graphOf(key) }, "Graph");
  replace(main, head, verbBar(() => [key], { verbs: kind?.verbs }), tabBar(pageOf(plural, object.metadata), tabs, tab, more), body);
  const shown = await TABS[tab]({ body, path, namespace, signal, query, object, kind });
  const changed = refresher(async () => {
    await shown?.changed?.(await refreshHead());
  }, signal);
  return {
    changed(change) {
      const about = change?.object.metadata;
      const own = about && about.name === name && change.object.kind === object.kind;
      if (!about || own || shown?.follows?.(change.object)) {
        changed();
      }
    },
  };
}

function tabBar(base, tabs, tab, more) {
  const links = tabs.map((one) =>
    make("a", { href: `${base}/${one}`, "aria-current": one === tab ? "page" : null }, one[0].toUpperCase() + one.slice(1)),
  );
  return make("nav", { class: "tabs", "aria-label": "Parts of this object" }, links, more);
}

function headOf({ kind, metadata, status, why, fix }) {
  const cost = status.cost ?? {};
  const rows = [
    ["Status", phaseMark(status.phase)],
    ["Why", plain(why || status.message)],
    ["Fix", plain(fix)],
    ["Done", status.total === undefined ? "" : `${status.succeeded ?? 0} of ${status.total}, ${status.active ?? 0} active, ${status.failed ?? 0} failed`],
    ["Cost", cost.actual === undefined ? "" : `${usd(cost.actual)} so far${cost.forecast === undefined ? "" : `, ${usd(cost.forecast)} in the end`}`],
    ["Best", status.best ? JSON.stringify(status.best) : ""],
    ["Restarts", status.restarts ? String(status.restarts) : ""],
    ["Where", (status.placement ?? []).map((one) => `${one.provider} ${one.live} of ${one.total} live`).join(", ")],
    ["Worked", status.workedSeconds === undefined ? "" : span(status.workedSeconds)],
    ["Age", age(metadata.creationTimestamp)],
    ["Created by", plain(metadata.annotations?.["fleetctl.dev/created-by"])],
    ["Changed by", plain(metadata.annotations?.["fleetctl.dev/applied-by"])],
    ["Labels", Object.entries(metadata.labels ?? {}).map(([label, value]) => `${label}=${value}`).join(", ")],
  ];
  const known = rows.filter(([, value]) => value);
  return [
    make("h1", {}, `${kind.toLowerCase()}/${metadata.name}`),
    make("dl", {}, known.flatMap(([title, value]) => [make("dt", {}, title), make("dd", {}, value)])),
  ];
}

const TABS = {
  artifacts: showArtifacts,
  details: showDetails,
  tasks: showTasks,
  logs: showLogs,
  plots: showPlots,

  async results({ body, path, namespace, signal }) {
    const refresh = async () => {
      const { items } = await get(`${path}/results`, { namespace, limit: RESULTS }, signal);
      const rows = items.map((one) =>
        make(
          "tr",
          {},
          make("td", {}, String(one.index)),
          make("td", {}, phaseMark(one.state)),
          make("td", { class: "wide" }, JSON.stringify(one.params ?? {})),
          make("td", { class: "wide" }, JSON.stringify(one.result ?? null)),
        ),
      );
      const none = make("p", { class: "quiet" }, "There is no result yet.");
      replace(body, rows.length ? table(["Index", "State", "Parameters", "Result"], rows, "Results") : none);
    };
    await refresh();
    return { changed: refresh };
  },

  async events({ body, path, namespace, signal }) {
    const refresh = async () => {
      const { items } = await get(`${path}/events`, { namespace }, signal);
      replace(body, table(["Age", "Type", "Reason", "Object", "Message"], eventRows(items), "Events"));
    };
    await refresh();
    return { changed: refresh };
  },

  async manifest({ body, object }) {
    const { apiVersion, kind, metadata, spec } = object;
    const { name, namespace, labels } = metadata;
    const text = JSON.stringify({ apiVersion, kind, metadata: { name, namespace, labels }, spec }, null, 2);
    replace(body, make("pre", { tabindex: "0" }, text));
    return {};
  },
};
