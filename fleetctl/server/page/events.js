// The newest events of all objects.

import { plain } from "./ansi.js";
import { get } from "./api.js";
import { make, replace, table } from "./dom.js";
import { age } from "./format.js";
import { namespace } from "./navigation.js";
import { refresher } from "./refreshing.js";

function sentence(one) {
  const text = [one.message, one.hint].filter(Boolean).join("; hint: ");
  return one.count > 1 ? `${text} (${one.count} times)` : text;
}

export function eventRows(items) {
  return items.toReversed().map((one) =>
    make(
      "tr",
      {},
      make("td", {}, make("time", { datetime: one.lastTimestamp }, age(one.lastTimestamp))),
      make("td", { class: one.type === "Warning" ? "bad" : "" }, one.type),
      make("td", {}, one.reason),
      make("td", {}, one.object),
      make("td", { class: "wide" }, plain(sentence(one))),
    ),
  );
}

export async function showEvents({ main, signal }) {
  async function refresh() {
    const found = await get("events", { namespace: namespace(), limit: 500 }, signal);
    const titles = ["Age", "Type", "Reason", "Object", "Message"];
    replace(
      main,
      make("h1", {}, "Events"),
      found.items.length ? table(titles, eventRows(found.items), "Events") : make("p", { class: "quiet" }, "Nothing happened yet."),
    );
  }

  await refresh();
  return { changed: refresher(refresh, signal) };
}
