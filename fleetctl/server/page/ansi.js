// Reads the colours of terminal output, and drops every other escape sequence: a log never moves a
// cursor, sets a title or opens a link here.

const ESCAPE = /\x1b(?:\[([0-9;]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])/g;
const KNOWN = new Set(["1", "2", "31", "32", "33", "34", "35", "36", "90"]);

// Returns [[text, classes], ...] and the styles that hold at the end.
export function parseColours(text, styles = []) {
  const found = [];
  let from = 0;
  let now = styles;
  for (const match of text.matchAll(ESCAPE)) {
    if (match.index > from) {
      found.push([clean(text.slice(from, match.index)), now]);
    }
    from = match.index + match[0].length;
    if (match[2] === "m") {
      now = styled(now, match[1]);
    }
  }
  if (from < text.length) {
    found.push([clean(text.slice(from)), now]);
  }
  return [found, now];
}

// Returns a text without its escape sequences.
export function plain(text) {
  return clean(String(text ?? "").replace(ESCAPE, ""));
}

function styled(before, codes) {
  let now = before;
  for (const code of (codes || "0").split(";")) {
    if (code === "0" || code === "" || code === "39" || code === "22") {
      now = [];
    } else if (KNOWN.has(code)) {
      now = [...now.filter((one) => one !== code), code];
    }
  }
  return now;
}

function clean(text) {
  return text.replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g, "");
}
