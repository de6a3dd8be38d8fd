// The output of one attempt, as it comes, with its colours; a search asks the server, which has all of
// it, also after the end.

import { follow, get } from "./api.js";
import { make, notice, replace } from "./dom.js";
import { parseColours } from "./ansi.js";
import { carryOut } from "./refreshing.js";

const SHOWN_MAX = 400_000; // letters that stay on the page; `fleetctl logs` has the rest

export async function showLogs({ body, path, namespace, signal, query }) {
  const numbers = Object.fromEntries(["index", "attempt", "node"].map((name) => [name, query.get(name) ?? ""]));
  const output = make("div", { class: "log", tabindex: "0", role: "log", "aria-label": "Output" });
  const found = make("div", { "aria-live": "polite" });
  const state = make("span", { class: "quiet" }, "");
  const fields = Object.entries(numbers).map(([name, value]) => {
    const field = make("input", {
      id: `log-${name}`,
      type: "number",
      min: "0",
      value,
      size: "5",
      placeholder: name === "attempt" ? "newest" : "0",
      onchange: () => {
        numbers[name] = field.value;
        restart();
      },
    });
    return [make("label", { for: `log-${name}` }, name), field];
  });
  const search = make("input", { id: "log-search", type: "search", placeholder: "a text", onchange: () => carryOut(look, signal, report) });
  let reading = new AbortController();
  let styles = [];
  let letters = 0;

  function append(text) {
    const stays = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    const [parts, now] = parseColours(text, styles);
    styles = now;
    for (const [piece, codes] of parts) {
      output.append(codes.length ? make("span", { class: codes.map((code) => `ansi-${code}`).join(" ") }, piece) : piece);
      letters += piece.length;
    }
    while (letters > SHOWN_MAX && output.firstChild !== output.lastChild) {
      letters -= output.firstChild.textContent.length;
      output.firstChild.remove();
    }
    if (stays) {
      output.scrollTop = output.scrollHeight;
    }
  }

  async function restart() {
    reading.abort();
    reading = new AbortController();
    const own = reading;
    styles = [];
    letters = 0;
    replace(output);
    state.textContent = "reading ...";
    try {
      await follow(`${path}/logs`, { ...numbers, namespace, follow: "1" }, {
        signal: own.signal,
        state: (word) => {
          state.textContent = word === "live" ? "live" : "connection lost, trying again";
        },
        event: ({ event, data }) => {
          if (event === "output") {
            append(data.text);
          }
          if (event === "end") {
            state.textContent = letters ? "ended" : "ended, without output";
          }
          return event !== "end";
        },
      });
    } catch (error) {
      state.textContent = "";
      replace(output, notice(error.message, error.hint));
    }
  }

  function report(error) {
    replace(found, notice(error.message, error.hint, true));
  }

  async function look() {
    if (!search.value) {
      replace(found);
      return;
    }
    const { lines } = await get(`${path}/logs`, { ...numbers, namespace, search: search.value }, signal);
    const rows = lines.map((line) => {
      const [parts] = parseColours(line.text);
      return make("div", {}, marked(parts.map(([text]) => text).join(""), search.value));
    });
    replace(found, make("p", {}, `${lines.length} lines have "${search.value}"`), make("pre", { tabindex: "0" }, rows));
  }

  replace(
    body,
    make("div", { class: "bar" }, fields, make("label", { for: "log-search" }, "Search"), search, state),
    found,
    output,
  );
  signal.addEventListener("abort", () => reading.abort());
  restart();
  return {};
}

function marked(text, wanted) {
  const at = text.toLowerCase().indexOf(wanted.toLowerCase());
  if (at < 0) {
    return [text];
  }
  const end = at + wanted.length;
  return [text.slice(0, at), make("mark", {}, text.slice(at, end)), text.slice(end)];
}
