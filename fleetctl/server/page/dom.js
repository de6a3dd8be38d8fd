// Builds elements. Text goes in as text alone, so that nothing that a person or a program wrote is
// ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// The same for elements of a drawing.
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) {
      continue;
    }
    if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...shown(children));
  return node;
}

export function replace(node, ...children) {
  node.replaceChildren(...shown(children));
  return node;
}

// Leaves out what a condition left out.
function shown(children) {
  return children.flat(2).filter((child) => child !== null && child !== undefined && child !== false);
}

export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

export function table(titles, rows, caption) {
  const head = make("tr", {}, titles.map((title) => make("th", { scope: "col" }, title)));
  return make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("thead", {}, head), make("tbody", {}, rows)),
  );
}

export function notice(text, hint = "", bad = false) {
  const lines = String(text).split("\n").map((line) => make("div", {}, line));
  if (hint) {
    lines.push(make("div", { class: "quiet" }, `hint: ${hint}`));
  }
  return make("div", { class: bad ? "notice bad" : "notice", role: bad ? "alert" : null }, lines);
}

// Asks in a dialog; resolves with true where the person agrees.
export function confirmed(title, lines, action) {
  const dialog = document.getElementById("dialog");
  return new Promise((resolve) => {
    const close = (agreed) => {
      dialog.close();
      resolve(agreed);
    };
    replace(
      dialog,
      make("h2", { id: "dialog-title" }, title),
      lines.map((line) => make("p", {}, line)),
      make(
        "div",
        { class: "bar" },
        make("button", { onclick: () => close(false) }, "Cancel"),
        make("button", { class: "danger", onclick: () => close(true) }, action),
      ),
    );
    dialog.setAttribute("aria-labelledby", "dialog-title");
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
  });
}
