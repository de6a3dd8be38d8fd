// The kept outputs of an object's tasks, each with its size and a link that stores it. A link carries
// no token: where there is one, the file comes by a request and is stored from the browser's memory.

import { address, get, getBlob, hasToken } from "./api.js";
import { announce, make, notice, replace, table } from "./dom.js";
import { age, bytes } from "./format.js";

const LIMIT = 100;
const BLOB_BYTES_MAX = 256 * 1024 * 1024; // larger ones by the command line, which goes on after a cut
const EMPTY_PAGES_MAX = 50; // of tasks without outputs, in a row

export async function showArtifacts({ body, path, namespace, signal, query, object, kind }) {
  const asked = { index: query.get("index") ?? "" };
  const pages = [""]; // the `continue` of each page that was shown
  const list = make("div", {});
  const reply = make("div", { "aria-live": "polite" });
  const box = make("input", {
    id: "artifact-index",
    type: "number",
    min: "0",
    size: "5",
    value: asked.index,
    placeholder: "all",
    onchange: () => {
      asked.index = box.value;
      pages.length = 1;
      refresh().catch(report);
    },
  });

  function report(error) {
    if (!signal.aborted) {
      replace(reply, notice(error.message, error.hint, true));
    }
  }

  async function readPage() {
    let from = pages.at(-1);
    for (let tries = 0; ; tries += 1) {
      const found = await get(`${path}/artifacts`, { namespace, limit: LIMIT, continue: from, ...asked }, signal);
      from = found.metadata.continue;
      if (found.items.length || !from || tries >= EMPTY_PAGES_MAX) {
        return found;
      }
    }
  }

  async function refresh() {
    const { items, metadata } = await readPage();
    const none = make("p", { class: "quiet" }, "No outputs are kept. ", make("code", {}, "template.outputs"), " names the files that a task keeps.");
    const titles = [kind.unit[0].toUpperCase() + kind.unit.slice(1), "Attempt", "File", "Size", "Age", "SHA-256"];
    replace(list, items.length ? table(titles, items.map(rowOf), "Artifacts") : none, pager(metadata.continue));
  }

  function rowOf(one) {
    return make(
      "tr",
      {},
      make("td", {}, String(one.index)),
      make("td", {}, String(one.attempt)),
      make("td", { class: "wide" }, linkOf(one)),
      make("td", {}, bytes(one.bytes)),
      make("td", {}, make("time", { datetime: one.modified }, age(one.modified))),
      make("td", {}, make("code", {}, one.sha256.slice(0, 12))),
    );
  }

  function linkOf(one) {
    const shown = visible(one.path);
    const link = make("a", { href: address(`run-outputs/${encodeURIComponent(one.run)}`, { path: one.path }), download: nameOf(one.path) }, shown);
    link.addEventListener("click", (event) => {
      if (hasToken()) {
        event.preventDefault();
        fetchFile(one, link).catch(report);
      }
    });
    return link;
  }

  async function fetchFile(one, link) {
    if (one.bytes > BLOB_BYTES_MAX) {
      const within = object.metadata.namespace ? ` -n ${object.metadata.namespace}` : "";
      const source = `${object.kind.toLowerCase()}/${object.metadata.name}:${one.index}/${visible(one.path)}`;
      const command = `fleetctl cp '${source.replaceAll("'", "'\\''")}' .${within}`;
      replace(reply, notice(`${visible(one.path)} has ${bytes(one.bytes)}, too much for this page`, command));
      return;
    }
    if (link.getAttribute("aria-busy")) {
      return;
    }
    link.setAttribute("aria-busy", "true");
    try {
      replace(reply, notice(`loading ${visible(one.path)} (${bytes(one.bytes)})`));
      store(await getBlob(`run-outputs/${encodeURIComponent(one.run)}`, { path: one.path }, signal), nameOf(one.path));
      replace(reply);
      announce(`${visible(one.path)} is stored`);
    } finally {
      link.removeAttribute("aria-busy");
    }
  }

  function pager(more) {
    const step = (act) => () => {
      act();
      refresh().catch(report);
    };
    return make(
      "div",
      { class: "bar" },
      pages.length > 1 && make("button", { onclick: step(() => pages.pop()) }, "Previous page"),
      more && make("button", { onclick: step(() => pages.push(more)) }, "Next page"),
    );
  }

  replace(body, make("div", { class: "bar" }, make("label", { for: "artifact-index" }, kind.unit), box), reply, list);
  await refresh();
  return { changed: refresh };
}

// Marks that end a line, or turn the direction of letters, would make a name look like another.
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]/gu;

function visible(path) {
  return path.replace(HIDDEN, (mark) => `\\u{${mark.codePointAt(0).toString(16)}}`);
}

function nameOf(path) {
  return path.split("/").at(-1).replace(HIDDEN, "_");
}

function store(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = make("a", { href: url, download: name });
  document.body.append(link); // some browsers follow no link outside of the document
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
