// One trial is chosen in all drawings at once: by pointer, by a click, or with the arrow keys.
"use strict";
const told = document.getElementById("told");
const marks = [...document.querySelectorAll("[data-trial]")];
const rest = told ? told.textContent : "";
const names = new Map();
for (const mark of marks) {
  const title = mark.querySelector("title");
  if (title) names.set(mark.dataset.trial, title.textContent);
}
// Best first, as the table has them.
const order = [...new Set([
  ...[...document.querySelectorAll("tr[data-trial]")].map((row) => row.dataset.trial),
  ...marks.map((mark) => mark.dataset.trial),
])];
let kept = null;
function choose(trial) {
  document.body.classList.toggle("picked", trial !== null);
  for (const mark of marks) {
    const chosen = mark.dataset.trial === trial;
    mark.classList.toggle("chosen", chosen);
    if (chosen && mark.tagName === "path") mark.parentNode.insertBefore(mark, lastRow(mark));
  }
  if (told) told.textContent = trial === null ? rest : names.get(trial) || `trial ${trial}`;
}
// Over the other lines, below the axes.
function lastRow(mark) {
  const rows = mark.parentNode.querySelectorAll(".row");
  return rows[rows.length - 1].nextSibling;
}
for (const mark of marks) {
  mark.addEventListener("pointerenter", () => choose(mark.dataset.trial));
  mark.addEventListener("pointerleave", () => choose(kept));
  mark.addEventListener("click", () => {
    kept = kept === mark.dataset.trial ? null : mark.dataset.trial;
    choose(kept);
  });
}
document.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (event.key === "Escape") choose((kept = null));
  if (!step || !order.length || !event.target.closest("figure")) return;
  const at = order.indexOf(kept);
  const next = at < 0 ? (step > 0 ? 0 : order.length - 1) : at + step;
  kept = order[Math.max(0, Math.min(order.length - 1, next))];
  choose(kept);
  event.preventDefault();
});
