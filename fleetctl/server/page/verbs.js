// Changes objects: one, or many that are selected, with the consent that the command line asks for.

import { ApiError, post } from "./api.js";
import { announce, confirmed, make, notice, replace } from "./dom.js";

const VERBS = [
  ["suspend", "Suspend", false],
  ["resume", "Resume", false],
  ["retry", "Retry", false],
  ["rerun", "Run again", true],
  ["delete", "Delete", true],
];

// Returns a row of buttons; chosen: returns the keys that they act on, and their namespace; verbs: those
// of a kind, default all; more: further buttons.
export function verbBar(chosen, { verbs = null, more = null } = {}) {
  const reply = make("div", { "aria-live": "polite" });
  const offered = VERBS.filter(([verb]) => verbs?.includes(verb) ?? true);
  const buttons = offered.map(([verb, title, asks]) =>
    make(
      "button",
      { class: asks ? "danger" : null, "data-verb": verb, onclick: () => run(verb, title, asks) },
      title,
    ),
  );

  async function run(verb, title, asks) {
    const keys = chosen();
    if (!keys.length) {
      replace(reply, notice("select at least one object"));
      return;
    }
    const named = keys.length === 1 ? keys[0] : `${keys.length} objects`;
    if (asks && !(await confirmed(`${title}: ${named}?`, keys.slice(0, 12), title))) {
      return;
    }
    await act(verb, title, keys, {});
  }

  async function act(verb, title, keys, more) {
    try {
      const done = await post(verb, { keys, ...more });
      const lines = (done.results ?? []).map((one) => [one.key, one.outcome, one.message].filter(Boolean).join(" "));
      replace(reply, notice(lines.join("\n") || `${title}: done`));
      announce(`${title}: done`);
    } catch (error) {
      const consent = error instanceof ApiError && error.status === 409 && !more.yes;
      const lines = error.message.split("\n");
      if (consent && (await confirmed(`${title} all the same?`, lines, title))) {
        await act(verb, title, keys, { yes: true });
      } else {
        replace(reply, notice(error.message, error.hint, true));
      }
    }
  }

  return make("div", {}, make("div", { class: "bar" }, buttons, more), reply);
}
